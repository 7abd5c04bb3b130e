"""The commands: what each reads, does and prints. `glenside.cli.application` puts them together."""
