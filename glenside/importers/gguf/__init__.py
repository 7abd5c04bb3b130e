"""Imports GGUF files: decoders whose weights stay as small as they are in the file."""

from glenside.importers.gguf.decoders import load_gguf, open_gguf, ring_gguf

__all__ = ["load_gguf", "open_gguf", "ring_gguf"]
