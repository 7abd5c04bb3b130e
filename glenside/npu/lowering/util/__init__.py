"""Fast numpy primitives, and memoization by identity."""
