"""Meanings of JAX's primitives, by kind."""
