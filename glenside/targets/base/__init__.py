"""Descriptions of machines: measures, cost models, budgets and rule families. Nothing here searches."""

from glenside.targets.base.capabilities import (
    BoundsProducts,
    BoundsVariants,
    Compiles,
    EmitsInstructions,
    MovesLayouts,
    Prepares,
    PricesAlgebra,
    PricesNodes,
    Rounds,
    TracksMemory,
)
from glenside.targets.base.prices import Cost, Instruction, InstructionCost, Prices, free, parse_objectives
from glenside.targets.base.product_prices import ProductPrices, Roofline
from glenside.targets.base.records import (
    Amounts,
    Budget,
    Cone,
    Extracted,
    Extractor,
    Measure,
    NodeCosts,
    Pass,
    Scope,
    Strategy,
    Variant,
    Way,
)
from glenside.targets.base.target import Target

__all__ = ["Amounts", "BoundsProducts", "BoundsVariants", "Budget", "Compiles", "Cone", "Cost"]
__all__ += ["EmitsInstructions", "Extracted", "Extractor", "Instruction", "InstructionCost", "Measure"]
__all__ += ["MovesLayouts", "NodeCosts", "Pass", "Prepares", "Prices", "PricesAlgebra", "PricesNodes"]
__all__ += ["ProductPrices", "Roofline", "Rounds", "Scope", "Strategy", "Target", "TracksMemory", "Variant"]
__all__ += ["Way", "free", "parse_objectives"]
