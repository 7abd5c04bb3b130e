"""Tiles of mapped layers: rows, weights, sums, strips."""
