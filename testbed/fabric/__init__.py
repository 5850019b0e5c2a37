"""The fabric as pure data: switches, links, paths, segments and their codes."""
