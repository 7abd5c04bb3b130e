"""The records of ATen operators: a module for each kind, all of which are found."""
