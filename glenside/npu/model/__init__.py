"""The model of the machine: cycles, results, order, ports and bounds of each instruction."""
