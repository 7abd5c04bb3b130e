"""Rematerialization: orders nests and recomputes temporaries, so that memory stays within a budget.

Equal terms are one term, so nothing is computed twice before lowering; here a nest may run again. `steps` groups nests
into steps, `live_sets` computes the live values of an order of steps, `initial_order` orders the first runs, `greedy`
and `mip` (an integer program) choose the values to recompute, and `plan` combines these.
"""
