"""Keeps a corpus: programs that reached something new, and failures with their tests, as text files in a folder."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from glenside.fuzzing.cases import Case, Failure
from glenside.ir.errors import BadInput
from glenside.ir.files import write_text

ENDINGS = {"program": ".glenside", "model": ".model.json"}
FAILURES = "failures"
_MOST = 5_000
_BYTES = 50_000


class Corpus:
    """The files of a folder. Without a folder nothing is stored, but programs are still mutated.

    cases  the existing ones first, in the order of their names, then those of this run
    """

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self.folder = None if folder is None else Path(folder)
        self.cases: list[Case] = []
        self.added = 0
        if self.folder is not None:
            try:
                (self.folder / FAILURES).mkdir(parents=True, exist_ok=True)
                self.cases = list(self._read(self.folder))
            except OSError as error:
                raise BadInput(f"cannot use the corpus {folder}: {error.strerror or error}") from None

    @staticmethod
    def _read(folder: Path) -> Iterator[Case]:
        for path in sorted(folder.iterdir())[:_MOST]:
            form = next((form for form, ending in ENDINGS.items() if path.name.endswith(ending)), None)
            if form is not None and path.is_file() and path.stat().st_size < _BYTES:
                yield Case(form, path.read_text(encoding="utf-8", errors="replace"))

    def add(self, case: Case, door: str, new: str) -> None:
        """Keeps a case that reached something new at a door."""
        if len(self.cases) >= _MOST:
            return
        self.cases.append(case)
        self.added += 1
        if self.folder is not None:
            note = (
                f"; at the door {door}, seed {case.seed}, it first reached: {new}\n" if case.form == "program" else ""
            )
            self._write(self.folder / f"{_digest(case)}{ENDINGS[case.form]}", note + case.text)

    def add_failure(self, failure: Failure) -> None:
        """Writes a failure: its case, and a test of it."""
        if self.folder is None:
            return
        name = f"{failure.outcome.door}-{_digest(failure.case)}".replace("-", "_")
        path = self.folder / FAILURES / f"test_{name}.py"
        self._write(path, test_of(failure))
        failure.test = str(path)

    @staticmethod
    def _write(path: Path, text: str) -> None:
        try:
            write_text(path, text)
        except OSError as error:
            raise BadInput(f"cannot write {path}: {error.strerror or error}") from None


def _digest(case: Case) -> str:
    return hashlib.sha256(case.text.encode()).hexdigest()[:12]


def test_of(failure: Failure) -> str:
    """Returns a test that fails as long as the fault exists."""
    outcome, case = failure.outcome, failure.case
    said = " ".join(outcome.detail.split()).replace("\\", "/").replace('"""', "'''")
    quoted = case.text.strip().replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    quoted = quoted.replace('"', '\\"') if quoted.endswith('"') else quoted
    name = outcome.door.replace("-", "_")
    return f'''"""Found by `glenside fuzz`: {outcome.verdict.value} at the door {outcome.door}.

{said[:400]}
"""

from glenside.fuzzing import visited

CASE = """
{quoted}
"""


def test_{name}() -> None:
    outcome = visited(CASE, door="{outcome.door}", seed={case.seed})
    assert not outcome.failed, outcome.detail
'''
