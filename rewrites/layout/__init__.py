"""Rules for the order in which tensors lie in memory."""
