"""What targets give to rules: numbers, and formulas of sizes."""

from __future__ import annotations

from glenside.egraph.schema import formula, parameter

# A matrix unit: rows and columns of multipliers, and the rows of an operand that one instruction may take.
rows = parameter("rows")
columns = parameter("columns")
max_rows = parameter("max_rows")

# Mappings of products: g groups of m rows and o rows, with items of k.
price = formula("price", "g m k o")
elsewhere = formula("elsewhere", "g m k o")  # beside the matrix unit
second_price = formula("second-price", "g m k o")  # decides among mappings of one price
bound = formula("bound", "work depth results weights")  # no product with at least these costs less
heavier = formula("heavier", "weights original")  # 0 where so many weights are allowed
