"""Targets as data: what a machine's instructions mean, what they take and what they cost. Records only."""

from glenside.target.cost import Cost, Price
from glenside.target.target import Instruction, Target

__all__ = ["Cost", "Instruction", "Price", "Target"]
