"""A machine that runs whole networks: its instructions, its cycles, two simulators of it, numpy's and the RTL's."""
