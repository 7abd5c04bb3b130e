"""Transfers between DRAM and scratchpad: layouts, permutation tables, sparse loads."""
