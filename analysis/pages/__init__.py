"""Pages to look at: of a run and of a comparison, each one file that needs no network."""
