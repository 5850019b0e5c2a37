"""The sparse maximum-likelihood explanation of any telemetry, with an estimated background."""
