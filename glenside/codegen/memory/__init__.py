"""Buffers in memory: live ranges, offsets in one arena, results that are stored over operands."""
