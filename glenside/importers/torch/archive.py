"""Reads .pt2 files, which `torch.export.save` writes: a zip file with the graph as JSON and weights as raw bytes.

Nothing is unpickled, and PyTorch is not needed: weights are mapped, and sample inputs, which are pickled, are not read.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import prod
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from glenside.importers.torch.decompose import decomposed
from glenside.importers.torch.serialized import Pickled, TensorMeta, graph_of_json, inputs_of_json, tensor_meta
from glenside.importers.torch.symbols import places_of, ranges_of
from glenside.importers.torch.walk import program_of
from glenside.ir import option_hints
from glenside.ir.dtypes import RECORDS
from glenside.ir.errors import BadInput
from glenside.ir.names import shortened, suggestion
from glenside.ir.open_program import OpenProgram, Range, is_range, range_of
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.replacing import PathLike, shown

JSON_BYTES = 1 << 28
"""Bytes of the graph and of a list of weights."""
FAULTS = (ArithmeticError, AttributeError, LookupError, RuntimeError, StopIteration, TypeError, ValueError)
"""Errors that a broken file can cause; the message then says what is broken."""


def load_pt2(path: PathLike, dims: Mapping[str, Any] | None = None) -> Program | OpenProgram:
    """Returns the program of a .pt2 file. Raises BadInput, with the path.

    dims  for each symbol of its open sizes a number, or a range within that of the file; with a range the result is an
          open program
    """
    with _faults_of(path):
        archive = _Archive(Path(path))
        content, tensors = archive.json(f"models/{archive.model}.json"), archive.tensors()
        sizes = _sizes(content, dims or {})

    def make(at: Mapping[str, int]) -> Program:
        with _faults_of(path):
            return replace(program_of(decomposed(graph_of_json(content, tensors, at))), name=Path(path).stem)

    ranges = {name: own for name, own in sizes.items() if is_range((dims or {})[name])}
    fixed = {name: least for name, (least, _, _) in sizes.items() if name not in ranges}
    if not ranges:
        return make(fixed)
    return OpenProgram(lambda at: make({**fixed, **at}), ranges, Path(path).stem)


def _sizes(content: Any, dims: Mapping[str, Any]) -> dict[str, Range]:
    """Returns the range of each open size of a file, of one number where that is given. Raises BadInput."""
    inputs = inputs_of_json(content)
    known = ranges_of(content, inputs)
    for name in dims:
        if name not in known:
            hint = suggestion(name, known) or f"; there are {', '.join(known)}" if known else "; all are numbers"
            raise BadInput(f"has no open size {shortened(name)}{hint}")
    missing = [name for name in known if name not in dims]
    if missing:
        ways = option_hints.dims({n: (low, 512 if high is None else high) for n, (low, high) in known.items()})
        raise BadInput(
            f"the size {missing[0]}, of {places_of(missing[0], inputs)}, is open: give numbers or ranges, such as"
            f" {ways}"
        )
    found = {name: range_of(name, size if is_range(size) else (size, size)) for name, size in dims.items()}
    for name, (least, greatest, _) in found.items():
        low, high = known[name]
        if least < low or (high is not None and greatest > high):
            most = f"to {high}" if high is not None else "on"
            raise BadInput(f"the size {name} is exported from {low} {most}, got {dims[name]}")
    return found


@contextmanager
def _faults_of(path: PathLike) -> Iterator[None]:
    """Raises BadInput, with the path, for errors that a broken file causes."""
    try:
        yield
    except BadInput as error:
        raise BadInput(f"{shown(path)}: {error.message}") from None
    except (OSError, zipfile.BadZipFile) as error:
        raise BadInput(f"cannot read {shown(path)}: {getattr(error, 'strerror', None) or error}") from None
    except FAULTS as error:
        words = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
        raise BadInput(f"{shown(path)}: is not a .pt2 file as torch.export.save writes it: {words}") from error


class _Archive:
    """A .pt2 file whose parts are stored uncompressed: it is mapped, and arrays are views of it."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            self.data = mmap(file.fileno(), 0, access=ACCESS_READ)
            self.entries = {info.filename.partition("/")[2]: info for info in archive.infolist()}
        if "serialized_exported_program.json" in self.entries or any(
            info.filename == "serialized_exported_program.json" for info in self.entries.values()
        ):
            raise BadInput("is of a PyTorch before 2.8, whose weights are pickled; load it there, and save it again")
        if "archive_format" not in self.entries or self._bytes("archive_format", 16) != b"pt2":
            raise BadInput("is not a .pt2 file: it has no archive_format of pt2")
        if "byteorder" in self.entries and self._bytes("byteorder", 16) != b"little":
            raise BadInput("requires numbers in little-endian order")
        models = [name[7:-5] for name in self.entries if name.startswith("models/") and name.endswith(".json")]
        if len(models) != 1:
            names = f": {', '.join(map(shortened, models[:8]))}" if models else ""
            raise BadInput(f"requires one exported program, got {len(models)}{names}")
        self.model = models[0]

    def _span(self, name: str) -> tuple[int, int]:
        """Returns the offset and the length of a part. Raises BadInput."""
        info = self.entries.get(name)
        if info is None:
            raise BadInput(f"has no part {shortened(name)}")
        if info.compress_type != zipfile.ZIP_STORED:
            raise BadInput(f"its part {shortened(name)} is compressed, which torch.export.save does not do")
        at = info.header_offset + 26  # the lengths of the name and of further fields, which the part follows
        names, extra = (int.from_bytes(self.data[i : i + 2], "little") for i in (at, at + 2))
        begin = at + 4 + names + extra
        end = begin + info.file_size
        if end > len(self.data):
            raise BadInput(f"its part {shortened(name)} is cut off")
        if crc32(memoryview(self.data)[begin:end]) != info.CRC:
            raise BadInput(f"its part {shortened(name)} is damaged: its checksum differs")
        return begin, info.file_size

    def _bytes(self, name: str, most: int) -> bytes:
        begin, size = self._span(name)
        if size > most:
            raise BadInput(f"its part {shortened(name)} has {size} bytes, more than {most}")
        return self.data[begin : begin + size]

    def json(self, name: str) -> Any:
        """Returns a part that is JSON."""
        return json.loads(self._bytes(name, JSON_BYTES))

    def tensors(self) -> Mapping[str, Any]:
        """Returns name -> a function that returns the value, of weights, buffers and constants."""
        found: dict[str, Any] = {}
        for folder in ("weights", "constants"):
            listed = self.json(f"data/{folder}/{self.model}_{folder}_config.json")["config"]
            for name, entry in listed.items():
                if entry["use_pickle"]:
                    found[name] = partial(_refuse_pickle, name)
                    continue
                meta = tensor_meta(entry["tensor_meta"], f"the {folder[:-1]} {shortened(name)}")
                found[name] = partial(self._array, f"data/{folder}/{entry['path_name']}", meta)
        return found

    def _array(self, part: str, meta: TensorMeta) -> Array:
        """Returns a tensor as a view of the file. Raises BadInput if its strides leave the part."""
        begin, size = self._span(part)
        dtype = RECORDS[meta.dtype].numpy
        if not prod(meta.sizes):
            return np.zeros(meta.sizes, dtype)
        last = meta.offset + sum((n - 1) * step for n, step in zip(meta.sizes, meta.strides, strict=True))
        if min(meta.offset, *meta.strides, 0) < 0 or (last + 1) * dtype.itemsize > size:
            raise BadInput(f"its part {shortened(part)} has {size} bytes, too few for {meta.sizes} {meta.dtype}")
        flat = np.frombuffer(self.data, dtype, size // dtype.itemsize, begin)[meta.offset :]
        steps = [step * dtype.itemsize for step in meta.strides]
        return np.lib.stride_tricks.as_strided(flat, meta.sizes, steps, writeable=False)


def _refuse_pickle(name: str) -> Array:
    raise Pickled(
        f"the value of {shortened(name)} is pickled, and nothing is unpickled; gl.from_torch takes the module"
    )
