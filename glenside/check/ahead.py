"""When a second process is one turn ahead: while this one compares programs on some numbers, it does so on the next.

The numbers of a turn are its own, so no verdict shows which process took it. The second one is a copy of this one, and
tells of a turn only where everything was equal, and which sides were taken. Whatever else it meets, this one meets by
itself.
"""

from __future__ import annotations

from glenside.check.memory import shortage
from glenside.ir.copies import may_be_copied
from glenside.ir.term import Term, postorder
from glenside.ir.types import AccessType

LEAST_SECONDS = 0.2
"""Of a turn: of a shorter one, a process would not be paid for."""
_LARGEST = 1 << 17  # elements of an array: larger ones are computed by all processors as it is
_MOST = 1 << 25  # elements of all arrays
_BYTES = 16  # of a number that knows its order


def possible(*roots: Term) -> bool:
    """Whether there is a processor and memory for a second process that takes turns."""
    if not may_be_copied():
        return False
    computed = [t for t in postorder(*roots) if not t.operator.moves and isinstance(t.type, AccessType)]
    total = sum(term.access.size for term in computed)
    largest = max((term.access.size for term in computed), default=0)
    return largest <= _LARGEST and total <= _MOST and not shortage(_BYTES * total)
