"""Reads back written C: compiles the files as documented in them, runs them, and compares the results."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from glenside.cache.objects import find, keep
from glenside.check.expected import Expected, values_of
from glenside.codegen.c_library.export import Library, library
from glenside.codegen.c_library.exported import Exported, buffer_elements, exported
from glenside.codegen.c_library.files import file_names, machine_name
from glenside.codegen.c_library.reader import NO_MEMORY, reader
from glenside.codegen.open_sizes.callable import OpenCallable
from glenside.codegen.open_sizes.lowered import OpenLowered
from glenside.codegen.open_sizes.lowered_chain import LoweredChain
from glenside.codegen.processor.find_compiler import Compiler, TakesTooLong, completed, known_compiler
from glenside.codegen.processor.model import Machine, is_here
from glenside.codegen.runtime.compile_and_load import LIBRARIES, computer, flags
from glenside.codegen.runtime.compiled_function import Lowered
from glenside.ir.dtypes import RECORDS
from glenside.ir.errors import BadInput
from glenside.ir.files import write_together
from glenside.ir.operand import Array, arrays
from glenside.ir.replacing import PathLike, WrittenWrong
from glenside.ir.threads import processors
from glenside.semantics.effort import seconds

MOST_SECONDS = 5.0
"""Predicted seconds of the interpreter, and of plain loops, up to which values are compared."""
_COMPILING, _RUNNING = 60.0, 30.0
"""Time limits in seconds of the compiler, and of the compiled program."""
_PLAIN_PRODUCT = 2e-9
"""Predicted seconds per product of plain loops."""
_TOLERANCE = 1e-3
"""The largest difference from the function in Python, relative to the largest number of a result: what rounds may
differ where the compiler adds in another order."""
_READER = "read-back"  # no program in C has this name


class _NotCompared(Exception):
    """The reason for which values are not compared."""


class _CannotCompile(BadInput):
    """The error that the compiler cannot compile any program for a machine."""


def write(
    lowered: Sequence[Lowered | OpenLowered | LoweredChain],
    path: PathLike,
    around: Callable[[Callable[[], str]], str] = lambda read: read(),
) -> tuple[Library, str]:
    """Writes a program as C for each machine, NAME.c and the other files in its folder, and reads them back.

    The files get their names after that: all or none. Returns the files, and the sentence of `read_back`.

    around  calls the function that reads the files back
    Raises BadInput, WrittenWrong.
    """
    file = Path(path)
    own = list(map(exported, lowered))
    made, said = library(own, file.stem), ""

    def verify(written: Mapping[Path, Path]) -> None:
        nonlocal said
        said = around(partial(read_back, own, file, written))

    texts = {file.parent / name: text.encode() for name, text in made.texts.items()}
    write_together({**texts, file.with_suffix(".weights"): made.weights}, verify)
    return made, said


def read_back(
    lowered: Sequence[Lowered | Exported], path: PathLike, written: Mapping[Path, Path], seed: int = 0
) -> str:
    """Compiles written files, runs them on drawn inputs, and compares the results with the interpreter's.

    Open sizes are the least ones, some between, and the greatest ones, as far as time suffices.

    lowered  the program for each of the machines
    path     the final path of the main file
    written  final path -> temporary path of each file

    Returns a sentence: what was compared, or why nothing was.
    Raises WrittenWrong: the files do not compile, do not open their weights, do not run, or give other results.
    """
    own = list(map(exported, lowered))
    here = [one for one in own if one.machine is None or is_here(one.machine)]
    absent = ", ".join(machine_name(one.machine) for one in own if one not in here)
    if not here:
        return f"not read back: this computer has no {absent}"
    try:
        by = known_compiler()
    except BadInput as error:
        return f"not read back: {error.message}"
    more = f"; {absent} is not on this computer, and not read back" if absent else ""
    try:
        with TemporaryDirectory() as folder:
            files = _Written(own, here, Path(path), Path(folder), by)
            for file, now in written.items():
                (files.folder / file.name).symlink_to(now.resolve())
            made = files.compiled()
            compared: dict[str, list[str]] = {}
            for sizes in _sizes(here[0]):
                try:
                    like = files.compare(made, sizes, seed)
                except _NotCompared as reason:
                    if not compared:
                        return f"compiled by {files.by}; values not compared: {reason}{more}"
                    break
                compared.setdefault(like, []).append("x".join(map(str, sizes.values())))
            said = [f"{like} on random inputs" for like in compared]
            if here[0].ranges:
                said = [f"{one} of sizes {', '.join(at)}" for one, at in zip(said, compared.values(), strict=True)]
            return f"compiled by {files.by} and run, values {', and '.join(said)}{more}"
    except (TakesTooLong, _CannotCompile) as error:
        return f"not read back: {error.message}"
    except OSError as error:  # a full disk, or a folder that does not allow execution
        return f"not read back: {error.strerror or error}"


def _sizes(program: Exported) -> list[dict[str, int]]:
    """Returns the open sizes at which results are compared."""
    between = {name: low + (high - low) // (2 * step) * step for name, (low, high, step) in program.ranges.items()}
    least, most = ({name: own[end] for name, own in program.ranges.items()} for end in (0, 1))
    return [own for i, own in enumerate([least, between, most]) if own not in [least, between, most][:i]]


@dataclass(frozen=True)
class _Written:
    """Written C files in a temporary folder, and the compiler for them.

    lowered  the program for each of the machines
    here     the programs for machines that this computer has
    path     the final path of the main file
    """

    lowered: Sequence[Exported]
    here: Sequence[Exported]
    path: Path
    folder: Path
    by: Compiler

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def _units(self) -> dict[str, Machine | None]:
        """C files that can be compiled here -> the machine of each."""
        main, *others = file_names(self.name, [one.machine for one in self.lowered])
        if not others:
            return {main: self.here[0].machine}
        units = {file: one.machine for file, one in zip(others, self.lowered, strict=True) if one in self.here}
        return units if len(self.here) < len(self.lowered) else {main: None, **units}

    @property
    def programs(self) -> list[str]:
        """The names of the programs: for several machines, the one that dispatches, and that of each machine."""
        return [Path(file).stem for file in self._units]

    def compiled(self) -> Path:
        """Compiles the files to an executable. Raises WrittenWrong, TakesTooLong, _CannotCompile, OSError."""
        main = self.folder / f"{_READER}.c"
        main.write_text(reader(self.here[0], self.name, self.programs), encoding="utf-8")
        made, units = self.folder / _READER, self._units
        flags_of = {file: flags(machine, self.by.kind) for file, machine in units.items()}
        texts = [(self.folder / file).read_text(encoding="utf-8") for file in (*units, f"{self.name}.h", main.name)]
        parts = [*texts, *(word for words in flags_of.values() for word in words), self.by.identity, *computer()]
        key = hashlib.sha256("".join(f"{len(part)}:{part}" for part in parts).encode()).hexdigest()
        kept = find(key)
        if kept is not None:
            made.write_bytes(kept)
            made.chmod(0o700)
            return made
        objects = [(self.folder / file).with_suffix(".o") for file in units]
        tasks: list[list[str | Path]] = [
            [*flags_of[file], "-c", self.folder / file, "-o", own] for file, own in zip(units, objects, strict=True)
        ]
        try:
            self.by.run(tasks, self.folder, _COMPILING)
            self.by.run([[*flags(None, self.by.kind), main, *objects, "-o", made, *LIBRARIES]], self.folder, _COMPILING)
        except TakesTooLong:
            raise
        except BadInput as error:
            self._require_compiler([*flags_of.values()])
            raise WrittenWrong(self.path, error.message) from None
        keep(key, made)
        return made

    def _require_compiler(self, flag_lists: Sequence[Sequence[str]]) -> None:
        """Raises _CannotCompile if the compiler, with any of these flags, does not compile an empty program."""
        empty = self.folder / f"{_READER}-empty.c"
        empty.write_text("int main(void) { return 0; }\n", encoding="utf-8")
        for words in flag_lists:
            try:
                self.by.run([[*words, empty, "-o", empty.with_suffix(""), *LIBRARIES]], self.folder, _COMPILING)
            except BadInput as error:
                raise _CannotCompile(error.message) from None

    def compare(self, made: Path, sizes: Mapping[str, int], seed: int) -> str:
        """Compares the results, and returns what they are equal to.

        Raises WrittenWrong if they differ, _NotCompared if the right ones are not known.
        """
        program = self.here[0].program_at(sizes)
        product = {"product": _PLAIN_PRODUCT} if any(own.machine is None for own in self.here) else {}
        predicted = seconds(program.term, **product)
        if predicted > MOST_SECONDS and self.here[0].compiled is not None:
            self._compare_with(self.here[0].compiled, made, sizes, seed)
            return "as those of the function in Python"
        if predicted > MOST_SECONDS:
            raise _NotCompared(f"they take about {predicted:.0f} seconds")
        values = values_of(program, seed)
        try:
            expected = Expected(program, values, seed)
        except BadInput as error:  # an index is outside its axis for every drawn input
            raise _NotCompared(error.message) from None
        if expected.undefined:
            raise _NotCompared("floats are cast to integers that cannot hold them, or bits of nan are asked for")
        for name, found in zip(self.programs, self._results(made, sizes, values), strict=True):
            if said := expected.difference(found):
                at = "".join(f", {size} = {n}" for size, n in sizes.items())
                raise WrittenWrong(self.path, f"compiled by {self.by} and run, {said} ({name}_run{at})")
        return "as meant"

    def _compare_with(self, function: OpenCallable, made: Path, sizes: Mapping[str, int], seed: int) -> None:
        """Compares the results with those of the compiled function. Raises WrittenWrong, _NotCompared."""
        given = function.drawn(sizes, seed)
        try:
            wanted = arrays(function.called(given, sizes, None, 1))
        except BadInput as error:  # a drawn index is outside its axis, or memory does not suffice
            raise _NotCompared(error.message) from None
        for name, found in zip(self.programs, self._results(made, sizes, given), strict=True):
            for number, (want, got) in enumerate(zip(wanted, found, strict=True), 1):
                most = float(np.abs(want[np.isfinite(want)].astype(np.float64)).max(initial=0))
                if not np.allclose(want, got, rtol=0, atol=_TOLERANCE * most, equal_nan=True):
                    at = "".join(f", {size} = {n}" for size, n in sizes.items())
                    raise WrittenWrong(
                        self.path, f"compiled by {self.by} result {number} is not that of Python ({name}_run{at})"
                    )

    def _results(self, made: Path, sizes: Mapping[str, int], values: Mapping[str, Array]) -> Iterator[list[Array]]:
        """Runs the executable, and yields the results of each program."""
        one, given, found = self.here[0], self.folder / f"{_READER}.in", self.folder / f"{_READER}.out"
        with open(given, "wb") as file:
            for buffer in one.inputs:
                file.write(np.ascontiguousarray(values[buffer.name], RECORDS[buffer.dtype].numpy).tobytes())
        threads = str(min(2, processors()))
        weights = next(self.folder.glob("*.weights"))
        words = [str(made), str(weights), str(given), str(found), threads, *map(str, sizes.values())]
        try:
            (done,) = completed([words], {}, _RUNNING)
        except BadInput as error:  # the time limit, or a folder that does not allow execution
            raise _NotCompared(error.message) from None
        if done.returncode == NO_MEMORY:
            raise _NotCompared("memory does not suffice")
        if done.returncode:
            how = done.stderr.strip() or f"it ends with status {done.returncode}"
            raise WrittenWrong(self.path, f"compiled by {self.by} it does not run: {how}")
        content, at = found.read_bytes(), 0
        for _ in self.programs:
            own: dict[int, Array] = {}
            for place in dict.fromkeys(one.returned):
                buffer = one.buffers[place]
                count, dtype = buffer_elements(buffer, sizes), RECORDS[buffer.dtype].numpy
                own[place] = np.frombuffer(content, dtype, count, at).reshape(buffer.at(sizes))
                at += count * dtype.itemsize
            yield [own[place] for place in one.returned]
