"""The commands: their inputs, actions and outputs. `glenside.cli.application` assembles them."""
