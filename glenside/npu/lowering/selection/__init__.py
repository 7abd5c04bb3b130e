"""Selects mappings of layers and layouts of tensors: candidates, costs, integer programs, bounds."""
