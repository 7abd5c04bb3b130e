"""`python -m glenside` is the command line."""

from glenside.cli import main

main()
