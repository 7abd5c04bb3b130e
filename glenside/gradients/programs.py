"""Gradients of programs, which are programs: of one result by its tensors, products with vectors, forward and back.

Corners follow JAX. |x| has the derivative 1 at 0; rounding and sign have 0 everywhere; equal operands of minimum and
maximum share alike, as do equal elements of reduce-max and reduce-min, also in windows; relu and clip have 0 at their
bounds (jax.nn.relu and lax.clamp); sorted elements are those that argsort takes; comparisons, positions, and all that
is made of integers or truths carries nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from glenside.gradients import algebra
from glenside.gradients.reverse import Reverse, reverse
from glenside.ir.dtypes import FLOATS, REALS
from glenside.ir.errors import BadInput
from glenside.ir.names import spelled_name, suggestion
from glenside.ir.operators.requirements import spelled
from glenside.ir.program import GradientOf, Program, by_node
from glenside.ir.term import Term, build, postorder
from glenside.ir.types import Tensor, TupleType

Names = str | Sequence[str]


@dataclass(frozen=True)
class _Question:
    """A program with what is asked of it, checked: results, and the tensors that they are differentiated by."""

    program: Program
    results: Mapping[str, Term]
    wrt: Mapping[str, Term]

    @staticmethod
    def of(program: Program, wrt: Names, of: Names | None) -> _Question:
        names = [wrt] if isinstance(wrt, str) else list(wrt)
        if not names:
            raise BadInput("a gradient requires the name of at least one tensor, got none")
        leaves = {name: _leaf(program, name) for name in names}
        if len(leaves) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise BadInput(f"a gradient requires tensors that are named once, got {spelled_name(twice)} twice")
        return _Question(program, _results(program, of), leaves)

    @cached_property
    def _layer_names(self) -> dict[Term, list[str]]:
        return by_node({**self.program.layers, **self.program.names})

    def place(self, term: Term) -> str:
        """The layer of a term, or the nearest one below it."""
        for below in reversed([*postorder(term)]):
            if below in self._layer_names:
                between = "of" if below is term else "after"
                return f" {between} {spelled_name(self._layer_names[below][0])}"
        return ""

    def reverse(self, cotangents: Mapping[str, Term]) -> Reverse:
        """The gradients for cotangents of the results."""
        whole: dict[Term, Term] = {}
        for name, g in cotangents.items():
            term = self.results[name]
            whole[term] = algebra.add(whole[term], g) if term in whole else g
        return reverse(whole, [*self.wrt.values()], self.place)

    def layers(self, found: Reverse) -> dict[str, Term]:
        """The program's layers, and those of the way back: NAME.input-gradient and NAME.weight-gradient."""
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
        """A program of these results, as a tuple, with the inputs of this one and more."""
        old = self.program
        signature = replace(old.signature, inputs=(*old.inputs.values(), *inputs), outputs=tuple(results))
        term = build("construct-tuple", *results.values())
        inside = set(postorder(term))
        layers = {name: node for name, node in layers.items() if node in inside}
        names = {name: node for name, node in old.names.items() if node in inside}
        return Program(term, name, layers, old.labels, old.constants, names, signature)

    def remembered(self, answer: Program, of: Names | None, cotangents: Iterable[Tensor]) -> Program:
        """The answer with what it is the gradient of, to which a check holds it."""
        names = None if of is None else [*self.results]
        weights = [tensor.name for tensor in cotangents]
        return replace(answer, gradient_of=GradientOf(answer.term, self.program, [*self.wrt], names, weights))


def _operand_names(node: Term, constants: Mapping[Term, bool]) -> tuple[str, str]:
    """What the gradients of a product's operands are called: what is made of constants is a weight."""
    pair = node.children[0]
    fixed = [constants[operand] for operand in pair.children] if pair.operator.name == "access-product" else []
    if len(fixed) == 2 and fixed[0] != fixed[1]:
        return ("weight", "input") if fixed[0] else ("input", "weight")
    return "first", "second"


def _leaf(program: Program, name: str) -> Term:
    """The leaf of a tensor that a gradient can be taken by. Raises BadInput."""
    known = program.tensors
    if name not in known:
        hint = suggestion(name, known)
        raise BadInput(f"a gradient requires a tensor of the program, got {spelled_name(name)}, which it has not{hint}")
    tensor = known[name]
    if tensor.dtype not in FLOATS:
        what = f"{spelled_name(name)} of {tensor.dtype}"
        raise BadInput(f"a gradient requires tensors of a float dtype ({', '.join(FLOATS)}), got {what}")
    return build("access-tensor", tensor)


def results_of(program: Program, of: Names | None) -> dict[str, Term]:
    """The results that are asked for, by name: all of them, or results, layers and other named terms.

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
    """Those that have a gradient. Raises BadInput."""
    found = results_of(program, of)
    for name, term in found.items():
        _require_reals(name, term)
    if not found:
        raise BadInput("a gradient requires a result to be taken of, got none")
    return found


def _require_reals(name: str, term: Term) -> None:
    kind = term.type
    if isinstance(kind, TupleType):
        raise BadInput(f"a gradient requires results that are no tuples, got {spelled_name(name)}, {kind}")
    if kind.dtype not in REALS:
        hint = f"{spelled_name(name)} of {kind.dtype}; of= names those that are meant"
        raise BadInput(f"a gradient requires results of a float dtype, got {hint}")


def _seeds(question: _Question, cotangent: Names | None) -> tuple[dict[str, Term], list[Tensor]]:
    """The cotangent of each result, and the inputs that they are. Raises BadInput."""
    results = question.results
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
    require_new(question.program, given)
    return {name: build("access-tensor", tensor) for name, tensor in zip(results, given, strict=True)}, given


def require_new(program: Program, tensors: Sequence[Tensor]) -> None:
    """The names are not those of other tensors. Raises BadInput."""
    taken = {*program.tensors}
    for tensor in tensors:
        if tensor.name in taken:
            raise BadInput(f"a new input requires a name of its own, got {spelled_name(tensor.name)}")
        taken.add(tensor.name)


def _or_zeros(found: Sequence[Term | None], like: Iterable[Term]) -> list[Term]:
    return [algebra.filled(term, 0) if g is None else g for g, term in zip(found, like, strict=True)]


def gradient(program: Program, wrt: Names, of: Names | None = None, cotangent: Names | None = None) -> Program:
    """The gradients of a result by tensors as a program: a tuple, in the order of `wrt`, each like its tensor.

    wrt        names of inputs and constants, of a float dtype: `gl.gradient(program, wrt=["w", "b"])`
    of         the name of the result, or of a layer or another named term; all results unless given
    cotangent  the name of a new input like the result (for several results NAME.RESULT, or a name for each): the answer
               is then the product of this vector and the Jacobian. Without it the result must have one element

    Results are called gradient.TENSOR; products that come of a layer's are layers NAME.input-gradient and
    NAME.weight-gradient (first, second, where not just one operand is made of constants). A tensor that nothing depends
    on has zeros. Raises BadInput.
    """
    return _gradient(program, wrt, of, cotangent)


def value_and_gradient(
    program: Program, wrt: Names, of: Names | None = None, cotangent: Names | None = None
) -> Program:
    """`gradient`, with the results themselves before the gradients, under their names. Raises BadInput."""
    return _gradient(program, wrt, of, cotangent, value=True)


def _gradient(program: Program, wrt: Names, of: Names | None, cotangent: Names | None, value: bool = False) -> Program:
    """Build the program of gradients, with `value` behind the results."""
    question = _Question.of(program, wrt, of)
    seeds, inputs = _seeds(question, cotangent)
    found = question.reverse(seeds)
    gradients = _or_zeros(found.found, question.wrt.values())
    results = {f"gradient.{name}": g for name, g in zip(question.wrt, gradients, strict=True)}
    name, results = ("value-and-gradient", {**question.results, **results}) if value else ("gradient", results)
    answer = question.program_of(f"{program.name}-{name}", results, question.layers(found), inputs)
    return question.remembered(answer, of, inputs)


def jvp(program: Program, wrt: Names, of: Names | None = None) -> Program:
    """The program of results and their tangents, ()(dims) each: how they change with those tensors, times a direction.

    The direction are new inputs NAME.tangent, like the tensors of `wrt`; the tangent of a result is called
    RESULT.tangent and follows all results. This is the adjoint of the adjoint, by what its cotangents go through: no
    operator says its derivative twice. Raises BadInput.
    """
    question = _Question.of(program, wrt, of)
    inputs = [Tensor(f"{name}.tangent", leaf.access.dims, leaf.access.dtype) for name, leaf in question.wrt.items()]
    require_new(program, inputs)
    seeds = {
        name: build("access-tensor", Tensor(f"a cotangent of {name}", term.access.dims, term.access.dtype))
        for name, term in question.results.items()
    }
    back = question.reverse(seeds)
    directions: dict[Term, Term] = {}
    for g, tensor in zip(back.found, inputs, strict=True):
        direction = build("access-tensor", tensor)
        if g is not None:
            directions[g] = algebra.add(directions[g], direction) if g in directions else direction
    forth = reverse(directions, [*seeds.values()], question.place)
    tangents = _or_zeros(forth.found, seeds.values())
    leaves = set(seeds.values())
    assert leaves.isdisjoint(postorder(*tangents)), "adjoints are linear in cotangents"
    results = {**question.results, **{f"{n}.tangent": t for n, t in zip(question.results, tangents, strict=True)}}
    return question.program_of(f"{program.name}-jvp", results, program.layers, inputs)
