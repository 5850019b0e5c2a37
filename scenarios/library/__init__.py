"""The scenarios that come with the testbed, one file each."""
