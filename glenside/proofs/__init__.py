"""Proofs that the rewrite rules hold for all sizes, read from the rules' own clauses."""
