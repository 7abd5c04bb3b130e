"""An array of multipliers, by its dataflow, its memory and what stands beside it."""
