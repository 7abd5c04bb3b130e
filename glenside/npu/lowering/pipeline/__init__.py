"""Compiles integer networks to programs: map, price, select, allocate, emit, compare."""
