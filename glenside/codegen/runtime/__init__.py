"""Compiles C, loads it, runs it as functions on numpy arrays, and exports it as files."""
