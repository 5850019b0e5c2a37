"""A switch over the wire, whatever program it runs: P4Runtime, and Thrift for registers."""
