"""The commands: what each reads, does and prints. `glenside.cli` puts them together."""
