"""A unit for products that takes its operands in one layout."""
