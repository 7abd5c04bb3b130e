"""Networks of integers: products of bytes, and what makes bytes of their sums again."""
