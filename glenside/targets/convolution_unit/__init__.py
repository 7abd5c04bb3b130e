"""A matrix unit that requires its operands in one layout."""
