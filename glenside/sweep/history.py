"""The file of a sweep: a JSON line for each finished cell, appended as cells finish, and read to resume the sweep."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import Any

from glenside.ir.errors import BadInput
from glenside.sweep.cells import Cell, Row

FORMAT = 1
_START = f'{{"sweep": {FORMAT}, '.encode()


class History:
    """The finished cells of a file, which need not exist.

    `foreign` are the numbers of lines that are not finished cells: incomplete lines, or lines of another program. They
    stay in the file. A file with only such lines is refused, since it is not a file of a sweep. Raises BadInput for
    that, and for a file that cannot be read.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.foreign: list[int] = []
        self._rows: dict[tuple[str, ...], Row] = {}
        content = _read(path)
        self._torn = bool(content) and not content.endswith(b"\n")
        ours = False
        for number, line in enumerate(content.splitlines(), 1):
            if not line.strip():
                continue
            found = _entry(line)
            ours = ours or found is not None or line.startswith(_START) or _START.startswith(line)
            if found is None:
                self.foreign.append(number)
            else:
                self._rows[found[0]] = found[1]
        if self.foreign and not ours:
            raise BadInput(f"{path} holds no line of a sweep, so nothing is appended to it; give a new file")

    def row(self, cell: Cell) -> Row | None:
        """Returns the row of a cell that finished without a failure, and checked if required; otherwise None."""
        row = self._rows.get(cell.identity)
        if row is None or row.failed or (cell.check and row.checked == "not checked"):
            return None
        return row

    def append(self, cell: Cell, row: Row) -> None:
        """Writes one line in a single write. Raises BadInput."""
        self._rows[cell.identity] = row
        names = {"model": cell.model, "parameters": dict(cell.parameters), "array": cell.array}
        entry = {**names, "objective": cell.objective, "identity": cell.identity, "row": asdict(row)}
        line = _START + json.dumps(entry)[1:].encode() + b"\n"
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                # An incomplete last line gets a line of its own.
                data = b"\n" + line if self._torn else line
                self._torn = True
                while data:
                    data = data[os.write(descriptor, data) :]
                self._torn = False
            finally:
                os.close(descriptor)
        except OSError as error:
            raise BadInput(f"cannot write {self.path}: {error.strerror or error}") from None

    def words(self) -> str:
        """Describes the lines that are not finished cells in one sentence, or returns ""."""
        if not self.foreign:
            return ""
        numbers = ", ".join(map(str, self.foreign[:8])) + (", .." if len(self.foreign) > 8 else "")
        many = len(self.foreign) > 1
        what = f"lines {numbers} are no finished cells" if many else f"line {numbers} is no finished cell"
        return f"{self.path}: {what}; skipped, and left in the file."


def _read(path: str) -> bytes:
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            raise BadInput(f"the results of a sweep go to a file, and {path} is none")
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise BadInput(f"cannot read {path}: {reason}") from None


def _entry(line: bytes) -> tuple[tuple[str, ...], Row] | None:
    """Returns the identity and the row of a line; None if it is not a finished cell."""
    try:
        content: Any = json.loads(line.decode())
        if not isinstance(content, dict) or content.get("sweep") != FORMAT:
            return None
        identity = content["identity"]
        if not isinstance(identity, list) or not all(isinstance(part, str) for part in identity):
            return None
        return tuple(identity), Row.of_dict(content["row"])
    except (ValueError, KeyError, RecursionError):
        return None
