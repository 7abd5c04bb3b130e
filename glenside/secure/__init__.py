"""Secure two-party computation: what a protocol sends, and what a program does by it."""

from glenside.secure.analysis import described, secrets
from glenside.secure.prices import node_traffic, product_truncation
from glenside.secure.registry import Operand, secrecy
from glenside.secure.semi2k import FIELDS, FRACTION_BITS, NOTHING, Semi2k, Traffic
from glenside.secure.traffic import prepare, program_traffic, total

__all__ = [
    "FIELDS",
    "FRACTION_BITS",
    "NOTHING",
    "Operand",
    "Semi2k",
    "Traffic",
    "described",
    "node_traffic",
    "prepare",
    "product_truncation",
    "program_traffic",
    "secrecy",
    "secrets",
    "total",
]
