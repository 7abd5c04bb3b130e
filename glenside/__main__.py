"""`python -m glenside` is the command line."""

from glenside.cli.main import main

main()
