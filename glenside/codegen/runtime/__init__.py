"""Compiles C, loads it, and runs it as functions on numpy arrays; exports it as files."""
