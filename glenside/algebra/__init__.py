"""The algebra of tensor programs: equal programs whose products are in another order, or of other operands."""
