"""A machine that runs whole networks: a pipelined array between memories, with its instructions and its RTL."""
