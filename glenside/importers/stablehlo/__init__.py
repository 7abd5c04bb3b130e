"""Imports the text of StableHLO, which `jax.jit(f).lower(..).as_text()` and `jax.export` write."""

from glenside.importers.stablehlo.program import from_stablehlo, load_stablehlo

__all__ = ["from_stablehlo", "load_stablehlo"]
