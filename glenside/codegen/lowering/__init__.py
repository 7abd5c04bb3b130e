"""Lowers terms to blocks: materialization, layouts, and the formulas of elements."""
