"""Rules for secure computation."""
