"""Parameters that targets pass to rules: numbers, and formulas of sizes."""

from __future__ import annotations

from glenside.egraph.schema import formula, parameter

# A matrix unit: rows and columns of multipliers, and the maximum number of operand rows of one instruction.
rows = parameter("rows")
columns = parameter("columns")
max_rows = parameter("max_rows")

# Mappings of products: g groups of m rows and o rows, with items of k.
price = formula("price", "g m k o")
fallback_price = formula("fallback-price", "g m k o")  # beside the matrix unit
second_price = formula("second-price", "g m k o")  # breaks ties of the first cost
third_price = formula("third-price", "g m k o")  # traded for the others, if a front of mappings is kept
within = formula("within", "best")  # maximum cost of a mapping that is kept, if the least cost is `best`
bound = formula("bound", "work depth results weights")  # no product with at least these costs less
exceeds_growth = formula("exceeds-growth", "weights original")  # 0 if this many weights are allowed

# A unit that addresses operands and results: the axis it requires innermost in memory, and the addresses that are free.
layout = parameter("layout")
loads = parameter("loads")
stores = parameter("stores")

# Convolutions: the maximum number of strips of rows, the values of m of Winograd's F(m, r) (a bit each), and whether
# ordinary convolutions may be sums of windows.
row_strips = parameter("row_strips")
winograd = parameter("winograd")
scatter = parameter("scatter")
