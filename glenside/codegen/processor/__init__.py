"""Processors as data: registers, vectors, caches, costs; and the C compilers that there are."""
