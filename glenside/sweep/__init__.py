"""Sweeps run every model on every array for every objective. Start at `cells.py`; `processes` and `cluster` run
them.
"""
