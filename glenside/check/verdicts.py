"""What a check says: verdicts, and why it ended before everything was compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from glenside.check.branches import Missing
from glenside.check.comparison import OutOfTime
from glenside.ir.errors import GlensideError
from glenside.ir.interrupts import answered

EXACT = "exact"
AS_REALS = "equal as reals"
"""What is exact, on a machine that computes with rounded numbers."""
_REACHED = "equal where reached"


def is_equal(verdict: str) -> bool:
    """True if everything was compared, and nothing differs."""
    return verdict in (EXACT, AS_REALS) or verdict.startswith(_REACHED)


def verdict_of(equal: int, trials: int, reason: str, missing: Sequence[Missing]) -> str:
    """Say what is known of what never differed: equal in so many of the trials, with sides that no number took, or
    with a reason why there were no more trials.
    """
    if equal < trials:
        return f"not checked: {reason}{f' (equal in {equal} of {trials} trials)' if equal else ''}"
    return f"{_REACHED}: {missing[0]}{f', and {len(missing) - 1} more' if missing[1:] else ''}" if missing else EXACT


@dataclass
class Ending:
    """How a comparison ended: `stopped` is "", "time-limit" or "interrupted", and `reason` says it in words."""

    reason: str = ""
    stopped: str = ""


@contextmanager
def ending(reason: str = "") -> Iterator[Ending]:
    """Tell why the comparison within ended, instead of raising it; the reason is why it need not begin."""
    end = Ending(reason)
    try:
        yield end
    except OutOfTime:
        end.stopped, end.reason = "time-limit", "time ran out"
    except KeyboardInterrupt:
        answered()
        end.stopped, end.reason = "interrupted", "interrupted"
    except MemoryError:
        end.reason = "memory does not suffice"
    except GlensideError as error:
        end.reason = str(error)
