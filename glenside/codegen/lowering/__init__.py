"""Lowers terms to blocks: what is materialized, its layout, and the formulas of elements."""
