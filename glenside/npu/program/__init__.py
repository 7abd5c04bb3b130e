"""Programs of the machine: instructions, DRAM, files, text, and what integers stand for."""
