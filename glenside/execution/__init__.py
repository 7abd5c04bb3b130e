"""Runs programs outside of the interpreter, and measures them."""
