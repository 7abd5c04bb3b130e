"""Files of programs, by their ending: which importer reads them and which exporter writes them."""

from glenside.formats.endings import ENDINGS, ending, load, save

__all__ = ["ENDINGS", "ending", "load", "save"]
