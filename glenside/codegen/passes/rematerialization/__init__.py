"""Rematerialization: what is computed again instead of kept, and when each nest runs, so that memory keeps to a budget.

Equal terms are one term, so nothing is computed twice before nests are made; here a nest may run again. `steps` has
what runs as one, `runs` what an order of them holds, `order` in which order each runs first, `greedy` and `retention`
(an integer program) what is computed again, and `plan` puts these together.
"""
