"""The configuration of the npu as a record and as text: sizes, memories, energies."""
