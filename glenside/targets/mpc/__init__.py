"""Secure computation by two parties: the target, what its protocol sends, and what a program does by it."""

from glenside.targets.mpc.analysis import described, secrets
from glenside.targets.mpc.prices import node_traffic, product_truncation
from glenside.targets.mpc.registry import Operand, secrecy
from glenside.targets.mpc.semi2k import FIELDS, FRACTION_BITS, NOTHING, Semi2k, Traffic
from glenside.targets.mpc.traffic import prepare, program_traffic, total

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
