"""Cost models of matrix units that several targets share; no target of its own."""
