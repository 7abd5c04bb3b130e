"""What describes a machine: measures, prices, budgets, the rules that serve it. Nothing here searches."""

from glenside.targets.base.cost import OBJECTIVES, Cost, InstructionCost, Price, parse_objectives
from glenside.targets.base.prices import Instruction, Prices, free
from glenside.targets.base.target import Budget, Scope, Target, Way
from glenside.targets.base.variant import Amounts, Measure, Variant

__all__ = [
    "OBJECTIVES",
    "Amounts",
    "Budget",
    "Cost",
    "Instruction",
    "InstructionCost",
    "Measure",
    "Price",
    "Prices",
    "Scope",
    "Target",
    "Variant",
    "Way",
    "free",
    "parse_objectives",
]
