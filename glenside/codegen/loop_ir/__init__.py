"""The loop IR: nests, blocks, scalar expressions, their analyses and their interpreter."""
