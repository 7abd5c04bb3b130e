"""The verifier of loops, and the programs with which the deep check runs them over residues and bounds."""
