"""Secure computation by two parties: the target, what its protocol sends, and what a program does by it."""
