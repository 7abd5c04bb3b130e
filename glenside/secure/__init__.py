"""Secure two-party computation: what a protocol sends, and what a program does by it."""

from glenside.secure.semi2k import FIELDS, NOTHING, Semi2k, Traffic

__all__ = ["FIELDS", "NOTHING", "Semi2k", "Traffic"]
