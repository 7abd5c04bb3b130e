"""Rules for the layout of tensors in memory."""
