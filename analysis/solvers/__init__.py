"""Numerics that know no method: incidence, coordinate descent, least squares, parallel parts."""
