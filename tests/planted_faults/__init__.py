"""Faults that are planted to measure the fuzzer: one change of one file each, of a kind that somebody could make.

`benchmarks/bench_fuzz.py` applies each to a copy of the package and says whether the fuzzer finds it.
"""

from planted_faults import emission, exporter, importer, lowering, npu, rules

MODULES = (rules, lowering, emission, importer, exporter, npu)
FAULTS = {
    f"{module.__name__.rpartition('.')[2]}-{number}": fault
    for module in MODULES
    for number, fault in enumerate(module.FAULTS, 1)
}
"""The kind and a number -> (file, the text that is there once, the text in its place, what is wrong then)."""
