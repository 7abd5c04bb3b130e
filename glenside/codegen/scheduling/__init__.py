"""Chooses the loops of a block: register tiles, vectors, packed operands, prefetches."""
