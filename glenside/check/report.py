"""What a check found, in words."""

from __future__ import annotations

from dataclasses import dataclass

EXACT = "exact"


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The verdicts of `check`: "exact", or a sentence that says what differs or why it was not checked.

    layers    layer name -> verdict, for the layers of both programs, in the order of the original
    result    the verdict on the programs' results
    how       one sentence: which numbers, which seed, what stands for functions of reals
    stopped   "", "time-limit" or "interrupted"
    """

    layers: dict[str, str]
    result: str
    how: str
    seconds: float
    stopped: str = ""

    @property
    def ok(self) -> bool:
        """Whether the result and every layer are exact."""
        return self.result == EXACT and all(verdict == EXACT for verdict in self.layers.values())

    def __str__(self) -> str:
        wrong = [f"{name}: {verdict}" for name, verdict in self.layers.items() if verdict != EXACT]
        lines = [
            f"result: {self.result}",
            f"layers: {len(self.layers) - len(wrong)} of {len(self.layers)} exact",
            *wrong,
        ]
        return "\n".join([*lines, f"{self.how} ({self.seconds:.2f} s)"])
