"""The soft switch as a process: command line, ports, P4Runtime and Thrift."""
