"""Analyses of programs: critical path, counts of accesses, occupancy, moves to larger machines."""
