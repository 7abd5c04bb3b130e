"""Quantizes networks to integers: products of bytes, whose sums are requantized to bytes."""
