"""The instruction set: one record for each instruction and register, and what is derived from them."""
