"""Networks as integer layers."""

from __future__ import annotations

from glenside.quantization.layers import IntegerLayer, IntegerNetwork, Requantised, leaf_of

__all__ = ["IntegerLayer", "IntegerNetwork", "Requantised", "leaf_of"]
