"""Rules that move data: slices, pads, transposes and splits among each other and past computations."""
