"""The machine as a record and as text: sizes, memories, energies."""
