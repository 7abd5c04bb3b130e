"""Passes over loop nests, in the order of `glenside.codegen.pipeline`."""
