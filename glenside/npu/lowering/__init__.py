"""Mapped layers as instructions of the machine: where operands come from, in which rows of lanes, in which order."""
