"""Secure computation by two parties: the target, and the traffic of its protocol and of programs."""
