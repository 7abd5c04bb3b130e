"""The npu, an accelerator for whole networks: its instruction set, cycle model, compiler, numpy simulator and RTL."""
