"""Targets as data: what a machine's instructions mean, what they take and what they cost. Records only."""

from glenside.targets.base.cost import OBJECTIVES, Cost, Price, Spent, parse_objectives
from glenside.targets.base.target import Instruction, Target

__all__ = ["OBJECTIVES", "Cost", "Instruction", "Price", "Spent", "Target", "parse_objectives"]
