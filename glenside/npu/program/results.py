"""Computes a network's results from a program's DRAM: dequantizes the npu's outputs and evaluates the host's steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from glenside.ir.errors import BadInput, GlensideError
from glenside.ir.names import spelled_name, suggestion
from glenside.ir.operand import Array
from glenside.ir.text import parse
from glenside.ir.types import TupleType
from glenside.npu.program.affine_quantization import StandsFor
from glenside.npu.program.program import DTYPES, Host, NpuProgram, Place
from glenside.quantization.layers import IntegerNetwork
from glenside.semantics.interpreter import evaluate


def with_inputs(program: NpuProgram, inputs: Mapping[str, Array]) -> NpuProgram:
    """Returns the program with input values in its DRAM: integers of the input's dtype unchanged, others quantized.

    Raises BadInput.
    """
    dram = program.dram.copy()
    for name, value in inputs.items():
        if name not in program.inputs:
            raise BadInput(f"the program has no input {spelled_name(name)}{suggestion(name, program.inputs)}")
        place = program.inputs[name]
        place.write(dram, _integers(name, place, np.asarray(value)))
    return replace(program, dram=dram)


def _integers(name: str, place: Place, own: Array) -> Array:
    """Converts a value to the integers of a place. Raises BadInput."""
    stands_for = place.stands_for
    if own.shape == place.shape and own.dtype.kind in "iuf" and np.isfinite(own).all():
        if stands_for is not None and own.dtype != place.dtype:
            return stands_for.integers(own, place.dtype)
        if np.array_equal(own, own.astype(place.dtype)):
            return own
    more = "" if stands_for is None else ", or finite numbers to quantize"
    raise BadInput(f"the input {spelled_name(name)} is {place.dtype} {place.shape}{more}, got {own.dtype} {own.shape}")


def outputs(program: NpuProgram, dram: Array) -> dict[str, Array]:
    """Reads the npu's outputs from DRAM, by name; dequantized if their quantization is known."""
    found = {name: (place, place.read(dram)) for name, place in program.outputs.items()}
    return {n: own if p.stands_for is None else p.stands_for.real(own) for n, (p, own) in found.items()}


def results(program: NpuProgram, dram: Array) -> dict[str, Array]:
    """Returns the network's results from DRAM, by name, in its order and dtypes, with the host's steps applied.

    Raises BadInput if the text of the host's steps is not a program.
    """
    left, host = outputs(program, dram), program.host
    if host is None:
        return left
    return _stepped(host, left, {name: place.read(program.dram) for name, place in host.operands.items()})


def _stepped(host: Host, left: Mapping[str, Array], constants: Mapping[str, Array]) -> dict[str, Array]:
    try:
        program = parse(host.meaning)
        known = {
            name: value.astype(program.tensors[name].dtype) for name, value in left.items() if name in program.tensors
        }
        (found,) = evaluate([program.term], {**constants, **known})
    except GlensideError as error:
        raise BadInput(f"the text of the host's steps is not a program: {error}") from error
    every = found if isinstance(found, tuple) else (found,)
    if len(every) != len(host.results):
        raise BadInput(f"the host's steps have {len(every)} results and {len(host.results)} names")
    return {name: np.asarray(own) for name, own in zip(host.results, every, strict=True)}


def computed(network: IntegerNetwork, left: Mapping[str, Array]) -> dict[str, Array]:
    """Returns a network's results by name from its integer outputs by name, as `results` does for its program."""
    named = zip(network.program.result_names(), network.outputs, strict=True)
    real = {name: StandsFor.of(*stands_for).real(left[name]) for name, stands_for in named}
    if network.host is None:
        return real
    host, constants = network.host, {**network.host.constants}
    return _stepped(Host(str(host), {}, tuple(host.result_names())), real, constants)


def with_host(program: NpuProgram, network: IntegerNetwork) -> NpuProgram:
    """Appends the host's steps of a network to its program, and places for inputs that nothing reads.

    These inputs and the constants of the host's steps are stored behind the program's DRAM, in whole beats.
    """
    parts, end = [program.dram], len(program.dram)

    def room(size: int, content: bytes = b"") -> int:
        nonlocal end
        whole = np.zeros(-(-size // program.machine.bandwidth) * program.machine.bandwidth, np.uint8)
        whole[: len(content)] = np.frombuffer(content, np.uint8)
        parts.append(whole)
        end += len(whole)
        return end - len(whole)

    inputs = {**program.inputs}
    for name, tensor in network.unread.items():
        dtype = tensor.dtype if tensor.dtype in DTYPES else "int8"
        inputs[name] = Place(room(prod(tensor.dims) * np.dtype(dtype).itemsize), tuple(tensor.dims), dtype)
    host = None
    if network.host is not None:
        operands = {
            name: Place(room(value.nbytes, np.ascontiguousarray(value).tobytes()), value.shape, value.dtype.name)
            for name, value in network.host.constants.items()
        }
        host = Host(str(network.host), operands, tuple(network.host.result_names()), network.rest)
    return replace(program, dram=np.concatenate(parts), host=host, inputs=inputs)


def dtypes(program: NpuProgram) -> dict[str, str]:
    """Returns the dtype of each result, by name. Raises BadInput if the text of the host's steps is not a program."""
    if program.host is None:
        return {name: _dtype(place) for name, place in program.outputs.items()}
    try:
        term = parse(program.host.meaning).term
    except GlensideError as error:
        raise BadInput(f"the text of the host's steps is not a program: {error}") from error
    kinds: Any = term.type.items if isinstance(term.type, TupleType) else (term.access,)
    return {name: own.dtype for name, own in zip(program.host.results, kinds, strict=False)}


def _dtype(place: Place) -> str:
    if place.stands_for is None:
        return place.dtype
    return place.stands_for.real(np.zeros(place.shape, place.dtype)).dtype.name
