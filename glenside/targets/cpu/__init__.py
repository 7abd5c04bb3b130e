"""A plain processor with a memory budget."""
