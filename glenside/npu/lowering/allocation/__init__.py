"""Allocates scratchpad, weights, tables and parameters on chip."""
