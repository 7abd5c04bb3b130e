"""The model of the npu: each instruction's cycles, results, happens-before order, ports and bounds."""
