"""The localization methods, all on the face of `analysis.methods.base`."""
