"""Programs as code for a processor: loop nests over buffers, C that says the same, and functions on numpy arrays."""
