"""Prints parallel jobs in C: the steps of a parallel loop, and with each the steps of the loops that run beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

SHARE = """
/* Of `count` parts, the first of which is the `begin`-th of so many, those that come before a step of a loop. */
static int64_t share(int64_t step, int64_t steps, int64_t parts, int64_t begin, int64_t count)
{
    int64_t found = step * parts / steps - begin;
    return found < 0 ? 0 : found > count ? count : found;
}
"""


@dataclass(frozen=True)
class Part:
    """One function call of a job.

    function  name of the function
    buffers   number of its buffer arguments
    scratch   True if it gets scratch memory of the thread, too
    along     for a loop that runs beside another: (steps of that loop, number of parts, first part, own steps)
    """

    function: str
    buffers: int
    scratch: bool
    along: tuple[int, int, int, int] | None = None

    def call(self, first: int, scratch: str) -> str:
        """Returns the call; its buffers start at number `first` of the job's."""
        given = [f"b[{first + i}]" for i in range(self.buffers)]
        steps = ["first", "last"]
        if self.along is not None:
            numbers = ", ".join(map(str, self.along))
            steps = [f"share({step}, {numbers})" for step in steps]
        return f"{self.function}({', '.join([*given, *steps, *([scratch] if self.scratch else [])])})"


@dataclass(frozen=True)
class Job:
    """The calls for some steps of a parallel loop: the first part is that loop, the others run beside it."""

    parts: tuple[Part, ...]

    @property
    def buffers(self) -> int:
        return sum(part.buffers for part in self.parts)

    @property
    def scratch(self) -> bool:
        return any(part.scratch for part in self.parts)

    def lines(self, name: str, scratch: int, table: str = "") -> Iterator[str]:
        """Yields the function of a job.

        scratch  bytes of scratch memory per thread
        table    the name of the first argument of each part, whose elements numbers of jobs may be; "" for none
        """
        own = f"(unsigned char *)b[{self.buffers}] + thread * {scratch}"
        yield f"static int {name}(void *const *b, int64_t first, int64_t last, int64_t thread)"
        unused = "" if self.scratch else "(void)thread; "
        unused += f"const int64_t *{table} = b[0]; (void){table}; " if table else ""
        calls, begin = [], 0
        for part in self.parts:
            calls.append(part.call(begin, own))
            begin += part.buffers
        if len(calls) == 1:
            yield f"{{ {unused}return {calls[0]}; }}"
            return
        yield f"{{\n    {unused}int status = {calls[0]};"
        yield from (f"    if (!status) status = {call};" for call in calls[1:])
        yield "    return status;\n}"
