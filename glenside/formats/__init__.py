"""Selects the importer or exporter of a program file by the ending of its name."""

from glenside.formats.endings import ENDINGS, ending, load, save

__all__ = ["ENDINGS", "ending", "load", "save"]
