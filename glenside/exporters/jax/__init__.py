"""Exports programs as Python functions of JAX, which SPU runs on secrets."""

from glenside.exporters.jax.export import argument_names, export_jax, save_jax

__all__ = ["argument_names", "export_jax", "save_jax"]
