"""Descriptions of machines: measures, cost models, budgets and rule families. Nothing here searches."""

from glenside.targets.base.prices import Cost, Instruction, InstructionCost, Prices, free, parse_objectives
from glenside.targets.base.target import Amounts, Budget, Measure, NodeCosts, Refinement, Scope, Target, Variant, Way

__all__ = ["Cost", "Instruction", "InstructionCost", "Prices", "free", "parse_objectives"]
__all__ += ["Amounts", "Budget", "Measure", "NodeCosts", "Refinement", "Scope", "Target", "Variant", "Way"]
