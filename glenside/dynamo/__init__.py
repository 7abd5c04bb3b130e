"""Compiles what `torch.compile(model, backend="glenside")` traces: forward and backward graphs of Core ATen.

A graph, or a part of one, that is refused is left to PyTorch, which a warning says once for each reason.
"""

from glenside.dynamo.graph_functions import backend

__all__ = ["backend"]
