"""Defines the text format: `parse(print_program(p))` gives the same term, which prints as the same bytes."""

from glenside.ir.text.parser import parse
from glenside.ir.text.printer import declaration, print_program, print_term

__all__ = ["declaration", "parse", "print_program", "print_term"]
