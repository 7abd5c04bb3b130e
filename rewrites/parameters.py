"""Parameters that targets pass to rules: numbers, and formulas of sizes."""

from __future__ import annotations

from glenside.egraph.schema import formula, parameter

# A matrix unit: rows and columns of multipliers, and the rows of an operand that one instruction may take.
rows = parameter("rows")
columns = parameter("columns")
max_rows = parameter("max_rows")

# Mappings of products: g groups of m rows and o rows, with items of k.
price = formula("price", "g m k o")
fallback_price = formula("fallback-price", "g m k o")  # beside the matrix unit
second_price = formula("second-price", "g m k o")  # decides among mappings of one price
third_price = formula("third-price", "g m k o")  # is traded for the others, where a front of mappings is kept
within = formula("within", "best")  # the most that a mapping may cost to be kept, where that is the least of any
bound = formula("bound", "work depth results weights")  # no product with at least these costs less
exceeds_growth = formula("exceeds-growth", "weights original")  # 0 where so many weights are allowed

# A unit that addresses operands and results: what it wants innermost in memory, and which addresses are free.
layout = parameter("layout")
loads = parameter("loads")
stores = parameter("stores")

# Convolutions: into how many strips of rows, for which m of Winograd's F(m, r) (a bit each), and whether ordinary ones
# may be sums of windows.
row_strips = parameter("row_strips")
winograd = parameter("winograd")
scatter = parameter("scatter")
