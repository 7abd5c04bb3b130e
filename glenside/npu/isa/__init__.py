"""The instruction set: one record per instruction and register, and the encodings and documents derived from them."""
