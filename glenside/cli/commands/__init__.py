"""The commands: what each reads, does and prints. `glenside.cli.main` puts them together."""
