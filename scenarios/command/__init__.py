"""The command line: a file for each command, and the options that they share."""
