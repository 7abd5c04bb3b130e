"""Tools for the SystemVerilog of the npu: simulation, C driver, synthesis, area."""
