"""Systolic arrays: dataflow, on-chip memory and an optional vector unit."""
