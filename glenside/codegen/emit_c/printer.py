"""Prints loop nests as C: one function for each nest, elements as defined by the records of dtypes and primitives.

Plain loops are C11; vectors use extensions of GCC and Clang. Integers wrap, in unsigned arithmetic; halves are floats
that are rounded after each operation, as in numpy.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property

from glenside.codegen.emit_c.amx import HELD, matrix_functions
from glenside.codegen.emit_c.parallel_jobs import SHARE, Job, Part
from glenside.codegen.emit_c.scalar_primitives import sort_function
from glenside.codegen.emit_c.strength_reduction import Pointers
from glenside.codegen.emit_c.thread_pool import NO_POOL, POOL
from glenside.codegen.emit_c.translation_units import NOW, PUBLIC, Source
from glenside.codegen.loop_ir.accesses import used_buffers
from glenside.codegen.loop_ir.affine_analysis import repeats
from glenside.codegen.loop_ir.bf16_split_matmul import MatrixProduct, product_of
from glenside.codegen.loop_ir.ir import (
    Buffer,
    Fence,
    For,
    Let,
    Loops,
    Nest,
    Prefetch,
    Require,
    Role,
    Sort,
    Statement,
    Store,
    Way,
    When,
    is_parallel,
)
from glenside.codegen.loop_ir.results_in_place import calls_of, copied
from glenside.codegen.loop_ir.step_loops import at_step, groups, strides
from glenside.codegen.loop_ir.structural_hash import alike, first_offsets, relative
from glenside.codegen.memory.buffer_arena import Arena, arena, scratch_of
from glenside.ir.index_map import Index

_GIVEN = "const void *const *given, void *const *results, unsigned char *arena"
_RUN = """PUBLIC int run(GIVEN, void *threads, double *seconds)
{
    static const int64_t loops[][3] = {LOOPS}; /* the first nest, the one after the last, and how often they run */
    for (int64_t i = 0; i < COUNT; i++)
        for (int64_t step = 0; step < loops[i][2]; step++)
            for (int64_t nest = loops[i][0]; nest < loops[i][1]; nest++) {
                if (seconds) seconds[nest] -= now(!threads);
                int status = run_nest(nest, step, given, results, arena, threads);
                if (status) return status;
                if (seconds) seconds[nest] += now(!threads);
            }
    return 0;
}""".replace("GIVEN", _GIVEN)


TABLE = "open_numbers"
"""The C name of the numbers that depend on open sizes."""


def source(loops: Loops, plan: Arena | None = None, *, is_open: bool = False) -> Source:
    """Returns C of `int run(const void *const *given, void *const *results, unsigned char *arena, void *threads,
    double *seconds)`.

    `given` are the tensors, packed constants among them, and `results` the results, in the order of their buffers;
    temporaries are in `arena`. `threads` is 0 or a pool of `open_pool`; `seconds` is 0 or one number for each nest.
    `run` returns 0; n if the index of the nth `Require` of the loops is outside of its axis; -1 if memory does not
    suffice. `run_nest` runs one nest, in one step of the loop around it, if any. A text that includes this C may define
    PUBLIC as static.

    plan     the memory plan of the temporaries; by default it is made here
    is_open  True: the last pointer in `given` is the table of numbers that depend on open sizes, and each function gets
             it as its first argument
    """
    return Printer(loops, plan, is_open=is_open).source()


class Printer(Pointers):
    """Prints one program: each nest is a function of the buffers that it uses; equal functions are printed once.

    nests   text of each function -> its name
    apart   the same for loops that are separate functions
    jobs    parallel jobs -> their names
    strides  what a step of the loop around the current nest moves its accesses to each buffer
    known   memoizes functions by structure: key -> name, and the positions of the buffers that are its arguments
    """

    def __init__(self, loops: Loops, plan: Arena | None = None, *, is_open: bool = False) -> None:
        super().__init__()
        self.loops, self.arena = loops, plan or arena(loops)
        self.table = [TABLE] if is_open else []
        self.places = self.arena.places
        self.shared: set[Buffer] = set()
        self.strides: dict[Buffer, int] = {}
        self.nests: dict[str, str] = {}
        self.apart: dict[str, str] = {}
        self.jobs: dict[Job, str] = {}
        self.known: dict[Hashable, tuple[str, list[int]]] = {}
        self.required = 0

    def source(self) -> Source:
        steps = [
            line
            for number, nest in enumerate(self.loops.nests)
            for line in (
                f"    case {number}: {{ /* {_comment(f'{nest.buffer}: {nest.what}')} */",
                *self._step(nest),
                "    }",
            )
        ]
        title = f"/* {_comment(self.loops.name)} */"
        nests = tuple(text.replace("NAME", name, 1) for text, name in self.nests.items())
        apart = tuple(text.replace("NAME", name, 1) for text, name in self.apart.items())
        runtime = [PUBLIC, NOW, POOL if self.jobs else NO_POOL]
        runtime += [SHARE] * any(len(job.parts) > 1 for job in self.jobs)
        return Source(title, (*self.functions, *apart), nests, "\n".join(self._end(steps)) + "\n", tuple(runtime))

    def _end(self, steps: Sequence[str]) -> Iterator[str]:
        for job, name in self.jobs.items():
            yield from job.lines(name, self.arena.scratch, *self.table)
        yield from self.entries(_GIVEN, steps)

    def entries(self, given: str, steps: Sequence[str]) -> Iterator[str]:
        """Yields the entry points; `steps`: the cases of a switch over nests."""
        head = f"PUBLIC int run_nest(int64_t nest, int64_t step, {given}, void *threads)"
        yield from self.switch(head, "threads", steps)
        loops, begin = list[str](), 0
        for counter, nests in groups(self.loops.nests):
            loops.append(f"{{{begin}, {begin + len(nests)}, {1 if counter is None else counter.size}}}")
            begin += len(nests)
        yield _RUN.replace("LOOPS", ", ".join(loops) or "{0}").replace("COUNT", str(len(loops)))

    def switch(self, head: str, last: str, steps: Sequence[str]) -> Iterator[str]:
        """Yields a function that runs one nest."""
        yield f"{head}\n{{\n    int status = 0;\n    (void)step; (void)given; (void)results; (void)arena; (void){last};"
        given = sum(buffer.role in (Role.INPUT, Role.CONSTANT) for buffer in self.loops.buffers)
        yield from (f"    const int64_t *{table} = given[{given}];\n    (void){table};" for table in self.table)
        yield from ("    switch (nest) {", *steps, "    }", "    return status;", "}")

    def _step(self, nest: Nest) -> Iterator[str]:
        """Yields the case of a nest: its buffers, and the calls that run it."""
        self.strides = strides(nest)
        calls = list(self._calls(at_step(nest, 0)))
        named = {int(number) for number in re.findall(r"\bb(\d+)\b", " ".join(calls))}
        for number in sorted(named):
            buffer, place = self.places_given[number]
            yield f"        {self.pointer(buffer, number, place)} /* {_said(buffer)} */"
        yield from (f"    {line}" for line in calls)
        yield "        break;"

    @cached_property
    def places_given(self) -> list[tuple[Buffer, int]]:
        """Each buffer with its position in `given`, or in `results`."""
        found, given, results = [], 0, 0
        for buffer in self.loops.buffers:
            is_result = buffer.role is Role.RESULT
            found.append((buffer, results if is_result else given))
            results += is_result
            given += buffer.role in (Role.INPUT, Role.CONSTANT)
        return found

    @cached_property
    def numbers(self) -> Mapping[Buffer, int]:
        """The numbers of buffers in `run`."""
        return {buffer: number for number, buffer in enumerate(self.loops.buffers)}

    def pointer(self, buffer: Buffer, number: int, place: int) -> str:
        """Returns the declaration of the pointer to a buffer; `place`: its position in `given` or `results`."""
        kind = self.memory(buffer)
        if buffer.role in (Role.INPUT, Role.CONSTANT):
            return f"const {kind} *b{number} = given[{place}];"
        where = f"results[{place}]" if buffer.role is Role.RESULT else f"(void *)(arena + {self.places[buffer]})"
        return f"{kind} *b{number} = {where};"

    def _calls(self, nest: Nest) -> Iterator[str]:
        """Yields the calls of a nest's functions: one for each parallel loop, with the loops that run beside it."""
        for part in calls_of(nest.body):
            loops = [statement for statement in part if is_parallel(statement)]
            if loops:
                yield self._unless_in_place(loops, self._job(loops))
                continue
            last = part[0].axis.size if isinstance(part[0], For) else 1
            name, own = self._function(part, False)
            given = [*self.table, *own, "0", str(last)]
            if any(buffer.role is Role.SCRATCH for buffer in used_buffers(part)):
                given.append(f"arena + {self.arena.size}")
            yield self._unless_in_place(part, f"    if ((status = {name}({', '.join(given)}))) return status;")

    def _unless_in_place(self, body: Sequence[Statement], call: str) -> str:
        """Returns a call that is left out if its statements copy an input to a result that is in its memory."""
        pair = None if self.strides else copied(body)
        if pair is None:
            return call
        given, result = (f"b{self.numbers[buffer]}" for buffer in pair)
        return call.replace("if (", f"if ({given} != {result} && ", 1)

    def _job(self, loops: Sequence[For]) -> str:
        """Returns a call for the steps of a parallel loop, and for the rows of the loops that run beside it."""
        steps, given, parts = loops[0].axis.size, [], []
        for loop in loops:
            name, own = self._function([loop], True)
            given += [*self.table, *(f"({pointer})" if " " in pointer else pointer for pointer in own)]
            scratch = any(buffer.role is Role.SCRATCH for buffer in used_buffers([loop]))
            count = len(self.table) + len(own)
            parts.append(Part(name, count, scratch, loop.beside and (steps, *loop.beside, loop.axis.size)))
        job = Job(tuple(parts))
        name = self.jobs.setdefault(job, f"each{len(self.jobs) + 1}")
        given += [f"(arena + {self.arena.size})"] * job.scratch
        pointers = f"(void *[]){{{', '.join(f'(void *){buffer}' for buffer in given)}}}"
        return f"    if ((status = for_all(threads, {name}, {pointers}, {steps}))) return status;"

    def _function(self, body: Sequence[Statement], parallel: bool) -> tuple[str, Sequence[str]]:
        """Returns the function of statements and the pointers that it takes; a structurally equal one is reused.

        A function whose indices have a constant offset takes a pointer to the element at this offset, so that the
        steps of a recurrence share a function.
        """
        offsets = first_offsets(body)
        like, buffers = alike(body, offsets)
        self.shared = self.arena.sharing(buffers)
        key = like, tuple(number for number, buffer in enumerate(buffers) if buffer in self.shared)
        if key not in self.known:
            before = self.required
            name = self._text(relative(body, offsets), parallel)
            if self.required != before:  # its statuses are unique
                return name, [self._pointer_to(buffer, offsets) for buffer in self._given()]
            self.known[key] = name, [buffers.index(buffer) for buffer in self._given()]
        name, places = self.known[key]
        return name, [self._pointer_to(buffers[place], offsets) for place in places]

    def _pointer_to(self, buffer: Buffer, offsets: Mapping[Buffer, int]) -> str:
        """Returns a pointer to the first element of a buffer, or to the one at its offset, in a step."""
        offset, stride = offsets.get(buffer, 0), self.strides.get(buffer, 0)
        moved = (f" + {offset}" if offset else "") + (f" + step * {stride}" if stride else "")
        return f"b{self.numbers[buffer]}{moved}"

    def parameter(self, buffer: Buffer) -> str:
        """Returns the declaration of a pointer parameter: `restrict` unless the buffer shares its memory."""
        return f"{self.memory(buffer)} *{'' if buffer in self.shared else 'restrict '}"

    def _given(self) -> list[Buffer]:
        """Returns the buffers that are arguments of the function: all but its scratch memory."""
        return [buffer for buffer in self.names if buffer.role is not Role.SCRATCH]

    def _text(self, body: Sequence[Statement], parallel: bool) -> str:
        self.names, self.written, self.declared = {}, set(), set()
        first = body[0]
        if parallel and isinstance(first, For):
            lines = [*self._loop(first, "    ", "first", "last")]
        else:
            lines = [*self._statements(body, "    ")]
        parameters = [f"const int64_t *{table}" for table in self.table]
        parameters += [
            f"{'' if b in self.written else 'const '}{self.parameter(b)}{self.names[b]}" for b in self._given()
        ]
        places, _ = scratch_of(body)
        own = [f"    {self.memory(b)} *{self.names[b]} = (void *)(scratch + {place});" for b, place in places.items()]
        parameters += ["int64_t first, int64_t last", *(["unsigned char *scratch"] if own else [])]
        head = f"int NAME({', '.join(parameters)})\n{{\n"
        unused = "".join(f" (void){table};" for table in self.table)
        end = [f"    (void)first; (void)last;{unused}", "    return 0;", "}"]
        if any(f"(&{HELD}, " in line for line in lines):
            own, end = [f"    int64_t {HELD} = 0;", *own], [f"    matrix_close(&{HELD});", *end]
        text = head + "\n".join([*own, *lines, *end])
        return self.nests.setdefault(text, f"nest{len(self.nests) + 1}")

    def _loop(self, loop: For, indent: str, first: str, last: str) -> Iterator[str]:
        counter = f"i{loop.axis.number}"
        head = f"for (int64_t {counter} = {first}; {counter} < {last}; {counter}++) {{"
        before, self.pointers = self.pointers, self.pointed(loop)
        own = list(self.pointers.values())
        if own:
            yield f"{indent}{{"
            yield from (f"{indent}{self.start(pointer, loop, first)}" for pointer in own)
        yield indent + head
        yield from (f"{indent}    {line}" for line in self.hidden(own))
        yield from self._statements(loop.body, indent + "    ")
        yield from (f"{indent}    {p.name} += {p.bytes};" for p in own if p.step)
        yield indent + ("}}" if own else "}")
        self.pointers = before

    def _statements(self, body: Sequence[Statement], indent: str) -> Iterator[str]:
        for statement in body:
            if isinstance(statement, For):
                yield from self._for(statement, indent)
            elif isinstance(statement, When):
                conditions = [self.guard(guard) for guard in statement.guards]
                if statement.condition is not None:
                    conditions.append(self.decided(statement.condition))
                yield f"{indent}if ({' && '.join(conditions) or '1'}) {{"
                yield from self._statements(statement.body, indent + "    ")
                yield indent + "}"
            else:
                yield from (indent + line for line in self._simple(statement))

    def _for(self, loop: For, indent: str) -> Iterator[str]:
        if loop.way is Way.UNROLLED:
            for step in range(loop.axis.size):
                self.steps[loop.axis] = Index() + step
                yield from self._statements(loop.body, indent)
            del self.steps[loop.axis]
        elif loop.way is Way.VECTOR:
            self.lane = loop.axis
            times = repeats(loop)
            stores = loop.body[:1] if times > 1 else loop.body
            yield from (f"{indent}{self.vector_store(store, times)}" for store in stores)
            self.lane = None
        elif loop.way is Way.APART:
            yield f"{indent}{self._part(loop)};"
        elif loop.way is Way.MATRIX:
            yield f"{indent}{self._product(product_of(loop))};"
        else:
            yield from self._loop(loop, indent, "0", str(loop.axis.size))

    def _product(self, product: MatrixProduct) -> str:
        """Returns a call that computes the sums of a tile."""
        self.functions |= dict.fromkeys(matrix_functions(product.parts))
        self.written.add(product.sums)
        later, lines = product.later
        places = [(product.sums, product.first), (product.a, product.of_rows), (product.b, product.of_columns)]
        given = [" + ".join(self.address(*place)) for place in (*places, (product.b, later))]
        how = product.rows, product.steps, lines, int(product.adds)
        return f"matrix_{product.parts}(&{HELD}, {', '.join([*given, *map(str, how)])})"

    def _part(self, loop: For) -> str:
        """Returns the call of a function that is one loop; its arguments are the buffers and counters that it uses."""
        before, self.written = self.written, set()
        text = "\n".join(self._loop(loop, "    ", "0", str(loop.axis.size)))
        words = dict.fromkeys(re.findall(r"\b[ip][0-9]+\b", text))
        changed = {self.names[buffer] for buffer in self.written}
        kinds = {name: self.parameter(buffer) for buffer, name in self.names.items()}
        given = [word for word in words if word in kinds or f"int64_t {word} " not in text]
        types = {name: f"{'' if name in changed else 'const '}{kind}" for name, kind in kinds.items()}
        parameters = [*(f"const int64_t *{table}" for table in self.table)]
        parameters += [f"{types.get(word, 'int64_t ')}{word}" for word in given]
        text += "".join(f"\n    (void){table};" for table in self.table)
        self.written |= before
        head = f"static __attribute__((noinline)) void NAME({', '.join(parameters)})\n{{\n"
        name = self.apart.setdefault(f"{head}{text}\n}}", f"part{len(self.apart) + 1}")
        return f"{name}({', '.join([*self.table, *given])})"

    def _simple(self, statement: Let | Store | Require | Sort | Prefetch | Fence) -> Iterator[str]:
        if isinstance(statement, Let):
            kind = "" if statement.known else f"{self.computed(statement.local.dtype)} "
            yield f"{kind}{statement.local.name} = {self.formula(statement.formula)};"
        elif isinstance(statement, Store):
            yield f"{self.target(statement)} = {self.stored(statement)};"
        elif isinstance(statement, Prefetch):
            how, (base, place) = ", 0, 2" if statement.far else "", self.address(statement.buffer, statement.place)
            yield f"__builtin_prefetch({base} + {f'{place} / 2' if statement.buffer.nibbles else place}{how});"
        elif isinstance(statement, Fence):
            yield '__asm__ volatile("" ::: "memory");'
        elif isinstance(statement, Require):
            self.required += 1
            name, size = statement.local.name, statement.size
            yield f"if ({name} < -{size} || {name} >= {size}) return {self.required};"
            yield f"if ({name} < 0) {name} += {size};"
        else:
            yield f"if ({self._sort(statement)}) return -1;"

    def _sort(self, statement: Sort) -> str:
        kind = self.sorted_as(statement.items.dtype)
        items, order = self.name(statement.items), self.name(statement.positions)
        self.written.add(statement.positions)
        name = f"sort_{kind}_{'down' if statement.descending else 'up'}"
        self.functions.setdefault(sort_function(name, kind, statement.descending))
        place = self.index(statement.place)
        return f"{name}({items} + {place}, {order} + {place}, {statement.count})"


def _comment(text: str) -> str:
    return re.sub("[^ -~]|[*]/", "?", text)


def _said(buffer: Buffer) -> str:
    return f"{_comment(buffer.name)}, {' '.join(map(str, buffer.dims)) or 'one'} {buffer.dtype}"
