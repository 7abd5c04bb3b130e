"""Imports functions of JAX through their jaxpr."""

from glenside.importers.jax.trace import from_jax

__all__ = ["from_jax"]
