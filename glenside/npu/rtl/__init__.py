"""The machine in SystemVerilog: simulation, C driver, synthesis, area."""
