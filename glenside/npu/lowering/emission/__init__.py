"""Emits the instructions of layers: row sources, products, results, copies."""
