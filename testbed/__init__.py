"""Makes things happen and records what was seen; knows no localization method."""
