"""Builds gradients of programs as programs: of results by tensors, vector-Jacobian and Jacobian-vector products.

Corners follow JAX. |x| has the derivative 1 at 0; rounding and sign have 0 everywhere; equal operands of minimum and
maximum get equal shares, as do equal elements of reduce-max and reduce-min, also in windows; relu and clip have 0 at
their bounds (jax.nn.relu and lax.clamp); sorted elements are those that argsort selects; comparisons, positions,
integers and bool carry no gradient.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from glenside.builder.unrolling import without_loops
from glenside.gradients import algebra
from glenside.gradients.reverse import Reverse, reverse
from glenside.ir.dtypes import FLOATS, REALS
from glenside.ir.errors import BadInput
from glenside.ir.names import spelled_name, suggestion
from glenside.ir.operators.requirements import spelled
from glenside.ir.program import GradientOf, Program, as_program, by_node
from glenside.ir.term import Term, build, postorder
from glenside.ir.types import Tensor, TupleType

Names = str | Sequence[str]


@dataclass(frozen=True)
class _Request:
    """A checked request: a program, its results, and the tensors by which they are differentiated."""

    program: Program
    results: Mapping[str, Term]
    wrt: Mapping[str, Term]

    @staticmethod
    def of(program: Program, wrt: Names, of: Names | None) -> _Request:
        names = [wrt] if isinstance(wrt, str) else list(wrt or ())
        if not all(isinstance(name, str) for name in names):
            raise BadInput(f"a gradient requires names of tensors, got {names}")
        if not names:
            raise BadInput("a gradient requires the name of at least one tensor, got none")
        program = without_loops(program)
        leaves = {name: _leaf(program, name) for name in names}
        if len(leaves) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise BadInput(f"a gradient requires tensors that are named once, got {spelled_name(twice)} twice")
        return _Request(program, _results(program, of), leaves)

    @cached_property
    def _layer_names(self) -> dict[Term, list[str]]:
        return by_node({**self.program.layers, **self.program.names})

    def place(self, term: Term) -> str:
        """Describes the layer of a term, or the nearest one below it."""
        for below in reversed([*postorder(term)]):
            if below in self._layer_names:
                between = "of" if below is term else "after"
                return f" {between} {spelled_name(self._layer_names[below][0])}"
        return ""

    def reverse(self, cotangents: Mapping[str, Term]) -> Reverse:
        """Returns the gradients for cotangents of the results."""
        whole: dict[Term, Term] = {}
        for name, g in cotangents.items():
            term = self.results[name]
            whole[term] = algebra.add(whole[term], g) if term in whole else g
        return reverse(whole, [*self.wrt.values()], self.place)

    def layers(self, found: Reverse) -> dict[str, Term]:
        """Returns the program's layers, and those of the backward pass: NAME.input-gradient and
        NAME.weight-gradient.
        """
        constants = self.program.info.constant
        layers = dict(self.program.layers)
        taken = set(layers.values())
        for name, node in self.program.layers.items():
            for product, part in zip(found.products.get(node, ()), _operand_names(node, constants), strict=False):
                full_name = f"{name}.{part}-gradient"
                if product is not None and product not in taken and full_name not in layers:
                    layers[full_name] = product
                    taken.add(product)
        return layers

    def program_of(
        self, name: str, results: Mapping[str, Term], layers: Mapping[str, Term], inputs: Iterable[Tensor] = ()
    ) -> Program:
        """Returns a program of these results, as a tuple, with this program's inputs and more."""
        old = self.program
        signature = replace(old.signature, inputs=(*old.inputs.values(), *inputs), outputs=tuple(results))
        term = build("construct-tuple", *results.values())
        inside = set(postorder(term))
        layers = {name: node for name, node in layers.items() if node in inside}
        names = {name: node for name, node in old.names.items() if node in inside}
        return Program(term, name, layers, old.labels, old.constants, names, signature)

    def with_origin(self, answer: Program, of: Names | None, cotangents: Iterable[Tensor]) -> Program:
        """Records in a gradient program the program that it differentiates, for checks."""
        names = None if of is None else [*self.results]
        weights = [tensor.name for tensor in cotangents]
        return replace(answer, gradient_of=GradientOf(answer.term, self.program, [*self.wrt], names, weights))


def _operand_names(node: Term, constants: Mapping[Term, bool]) -> tuple[str, str]:
    """Returns the names of the gradients of a product's operands: a constant operand is a weight."""
    pair = node.children[0]
    fixed = [constants[operand] for operand in pair.children] if pair.operator.name == "access-product" else []
    if len(fixed) == 2 and fixed[0] != fixed[1]:
        return ("weight", "input") if fixed[0] else ("input", "weight")
    return "first", "second"


def _leaf(program: Program, name: str) -> Term:
    """Returns the leaf of a tensor that has a gradient. Raises BadInput."""
    known = program.tensors
    if name not in known:
        hint = suggestion(name, known)
        raise BadInput(f"a gradient requires a tensor of the program, got {spelled_name(name)}{hint}")
    tensor = known[name]
    if tensor.dtype not in FLOATS:
        what = f"{spelled_name(name)} of {tensor.dtype}"
        raise BadInput(f"a gradient requires tensors of a float dtype ({', '.join(FLOATS)}), got {what}")
    return build("access-tensor", tensor)


def results_of(program: Program, of: Names | None) -> dict[str, Term]:
    """Returns the requested results by name: all of them, or results, layers and other named terms.

    Raises BadInput.
    """
    own = program.results()
    known = {**program.names, **program.layers, **own}
    names = list(own) if of is None else [of] if isinstance(of, str) else list(of)
    for name in names:
        if name not in known:
            hint = suggestion(name, known)
            raise BadInput(f"a gradient requires a result or a named term, got {spelled_name(name)}{hint}")
    return {name: known[name] for name in names}


def _results(program: Program, of: Names | None) -> dict[str, Term]:
    """Returns the requested results, which must have a gradient. Raises BadInput."""
    found = results_of(program, of)
    for name, term in found.items():
        _require_reals(name, term)
    if not found:
        raise BadInput("a gradient requires a result to differentiate, got none")
    return found


def _require_reals(name: str, term: Term) -> None:
    kind = term.type
    if isinstance(kind, TupleType):
        raise BadInput(f"a gradient requires results that are not tuples, got {spelled_name(name)}, {kind}")
    if kind.dtype not in REALS:
        hint = f"{spelled_name(name)} of {kind.dtype}; of= selects results"
        raise BadInput(f"a gradient requires results of a float dtype, got {hint}")


def _seeds(request: _Request, cotangent: Names | None) -> tuple[dict[str, Term], list[Tensor]]:
    """Returns the cotangent of each result, and the new inputs among them. Raises BadInput."""
    results = request.results
    if cotangent is None:
        if len(results) > 1:
            have = ", ".join(map(spelled_name, results))
            raise BadInput(f"a gradient of several results requires a cotangent, or one named by of=, got {have}")
        ((name, term),) = results.items()
        if term.access.size != 1:
            dims = spelled(term.access.dims)
            raise BadInput(
                f"a gradient requires a result of one element, or a cotangent, got {spelled_name(name)} of {dims}"
            )
        return {name: algebra.filled(term, 1)}, []
    names = [cotangent] if isinstance(cotangent, str) else list(cotangent)
    if len(names) == 1 and len(results) > 1:
        names = [f"{names[0]}.{name}" for name in results]
    if len(names) != len(results):
        raise BadInput(f"a gradient requires a cotangent for each of {len(results)} results, got {len(names)}")
    given = [
        Tensor(name, term.access.dims, term.access.dtype) for name, term in zip(names, results.values(), strict=True)
    ]
    require_new(request.program, given)
    return {name: build("access-tensor", tensor) for name, tensor in zip(results, given, strict=True)}, given


def require_new(program: Program, tensors: Sequence[Tensor]) -> None:
    """Requires names that no other tensor has. Raises BadInput."""
    taken = {*program.tensors}
    for tensor in tensors:
        if tensor.name in taken:
            raise BadInput(f"a new input requires a name of its own, got {spelled_name(tensor.name)}")
        taken.add(tensor.name)


def _or_zeros(found: Sequence[Term | None], like: Iterable[Term]) -> list[Term]:
    return [algebra.filled(term, 0) if g is None else g for g, term in zip(found, like, strict=True)]


def gradient(program: Program, wrt: Names, of: Names | None = None, cotangent: Names | None = None) -> Program:
    """Returns the gradients of a result by tensors as a program: a tuple, in the order of `wrt`, each like its tensor.

      wrt        names of inputs and constants, of a float dtype: `gl.gradient(program, wrt=["w", "b"])`
      of         the name of the result, or of a layer or another named term; by default all results
      cotangent  the name of a new input like the result (for several results NAME.RESULT, or a name for each): the
                 answer is then the vector-Jacobian product. Without it the result must have one element

    Results are called gradient.TENSOR; the products of a layer's gradients are layers NAME.input-gradient and
    NAME.weight-gradient (first and second, unless exactly one operand is constant). Tensors on which no result depends
    get zeros. Raises BadInput.
    """
    return _gradient(program, wrt, of, cotangent)


def value_and_gradient(
    program: Program, wrt: Names, of: Names | None = None, cotangent: Names | None = None
) -> Program:
    """Returns `gradient` with the results themselves before the gradients, under their names. Raises BadInput."""
    return _gradient(program, wrt, of, cotangent, value=True)


def _gradient(program: Program, wrt: Names, of: Names | None, cotangent: Names | None, value: bool = False) -> Program:
    """Builds the program of gradients, with `value` after the results."""
    request = _Request.of(as_program(program, "differentiated"), wrt, of)
    seeds, inputs = _seeds(request, cotangent)
    found = request.reverse(seeds)
    gradients = _or_zeros(found.found, request.wrt.values())
    results = {f"gradient.{name}": g for name, g in zip(request.wrt, gradients, strict=True)}
    name, results = ("value-and-gradient", {**request.results, **results}) if value else ("gradient", results)
    answer = request.program_of(f"{program.name}-{name}", results, request.layers(found), inputs)
    return request.with_origin(answer, of, inputs)


def jvp(program: Program, wrt: Names, of: Names | None = None) -> Program:
    """Returns the program of results and their tangents, ()(dims) each: the Jacobian-vector product.

    The vector is new inputs NAME.tangent, like the tensors of `wrt`; the tangent of a result is called RESULT.tangent
    and follows all results. It is computed as the adjoint of the adjoint, so no operator needs a second derivative
    rule. Raises BadInput.
    """
    request = _Request.of(as_program(program, "differentiated"), wrt, of)
    inputs = [Tensor(f"{name}.tangent", leaf.access.dims, leaf.access.dtype) for name, leaf in request.wrt.items()]
    require_new(program, inputs)
    seeds = {
        name: build("access-tensor", Tensor(f"a cotangent of {name}", term.access.dims, term.access.dtype))
        for name, term in request.results.items()
    }
    back = request.reverse(seeds)
    directions: dict[Term, Term] = {}
    for g, tensor in zip(back.found, inputs, strict=True):
        direction = build("access-tensor", tensor)
        if g is not None:
            directions[g] = algebra.add(directions[g], direction) if g in directions else direction
    forth = reverse(directions, [*seeds.values()], request.place)
    tangents = _or_zeros(forth.found, seeds.values())
    leaves = set(seeds.values())
    assert leaves.isdisjoint(postorder(*tangents)), "adjoints are linear in cotangents"
    results = {**request.results, **{f"{n}.tangent": t for n, t in zip(request.results, tangents, strict=True)}}
    return request.program_of(f"{program.name}-jvp", results, program.layers, inputs)
