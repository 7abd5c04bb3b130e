"""Decides whether a forked process runs speculative rounds: it compares on the next inputs while this process compares.

The inputs of a round depend on its number only, so verdicts do not depend on the process that runs it. The forked
process reports a round only if everything was equal, with the branch outcomes that it reached. Any other round is
repeated in this process.
"""

from __future__ import annotations

from glenside.check.memory import shortage
from glenside.ir.forked_work import may_fork
from glenside.ir.term import Term, postorder
from glenside.ir.types import AccessType

LEAST_SECONDS = 0.2
"""The shortest round for which a forked process pays."""
_LARGEST = 1 << 17  # elements of an array: larger ones are computed on all processors anyway
_MOST = 1 << 25  # elements of all arrays
_BYTES = 16  # of a residue with its position on the real line


def possible(*roots: Term) -> bool:
    """True if there are a processor and memory for a forked process."""
    if not may_fork():
        return False
    computed = [t for t in postorder(*roots) if not t.operator.moves and isinstance(t.type, AccessType)]
    total = sum(term.access.size for term in computed)
    largest = max((term.access.size for term in computed), default=0)
    return largest <= _LARGEST and total <= _MOST and not shortage(_BYTES * total)
