"""The cost model: work of nests, cache misses, and lines that threads pass to each other."""
