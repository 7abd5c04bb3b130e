"""The npu target: a pipelined array with memories, instructions and RTL, which runs whole networks."""
