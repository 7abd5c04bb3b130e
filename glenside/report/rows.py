"""Builds the report of an answer: a row for each layer, totals of every baseline and of the answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from glenside.analysis.layers import ProductSizes, product_of, product_sizes
from glenside.egraph.search import SearchResult
from glenside.ir.operators.opaque import black_boxes
from glenside.ir.program import Program, is_product
from glenside.ir.term import Term
from glenside.passes.answer import CHOSEN, Answer, Problem
from glenside.report.report import FORWARD, Choice, LayerRow, Report, part_of
from glenside.targets.base import Amounts, BoundsProducts, BoundsVariants, Rounds, Target, Variant


def by_layer(names: Iterable[str]) -> list[str]:
    """Orders names of layers; gradients, LAYER.PART-gradient, come right after their layer."""
    known = dict.fromkeys(names)
    after: dict[str, list[str]] = {}
    for name in known:
        layer, part = part_of(name, known)
        if part != FORWARD:
            after.setdefault(layer, []).append(name)
    return [found for name in known if part_of(name, known)[1] == FORWARD for found in (name, *after.get(name, ()))]


def report_of(original: Program, target: Target, problem: Problem, searched: SearchResult, answer: Answer) -> Report:
    """Returns the report of an answer that is not checked yet."""
    program = answer.prepared
    rows = [_row(name, program, target, answer, searched.stopped) for name in by_layer(program.layers)]
    totals = {which: _total(target, answer, which, rows) for which in (answer.variants or answer.programs)}
    summed = all(target.whole(p) is None for p in answer.programs.values())
    chosen, budget, notes = answer.program, target.budget, []
    if budget is not None and not budget.spares_baseline and (excess := budget.excess(totals[CHOSEN])):
        notes = [f"the program exceeds the {budget.what} by {excess:,.0f} {budget.unit}: no variant takes less"]
    remarks = dict.fromkeys(remark for v in answer.variants.get(CHOSEN, {}).values() for remark in v.remarks)
    left_out: Sequence[str] = ()
    if isinstance(target, Rounds):
        left_out = target.left_out([answer.layers[name].variants for name in program.layers])
    return Report(
        program=original.name,
        target=target.name,
        layers=rows,
        measures=target.measures,
        objectives=target.objectives,
        totals=totals,
        between_layers={} if summed else _between(program, target, answer, totals),
        front=target.front or (),
        compared=target.compared,
        e_nodes=searched.snapshot.e_nodes,
        e_classes=searched.snapshot.e_classes,
        iterations=searched.progress.iterations,
        distinct=problem.distinct,
        stopped=searched.stopped,
        rules=searched.progress.rules,
        cost={} if answer.cost is None else answer.cost._asdict(),
        notes=notes,
        remarks=[*original.signature.remarks, *target.remarks(chosen), *_least(rows, target), *remarks, *left_out],
        black_boxes=black_boxes(original.term),
        sections=target.report(original, chosen),
        uncounted=target.uncounted,
        peak=target.peak,
    )


def _least(rows: Sequence[LayerRow], target: Target) -> Sequence[str]:
    """Returns the target's sentence on the lower bound of the layers that have one."""
    known = [(row.lower_bound, row.gap) for row in rows if row.lower_bound is not None and row.gap is not None]
    least = sum(bound for bound, _ in known)
    if not known or not isinstance(target, BoundsVariants):
        return ()
    return target.least_words(least, least + sum(gap for _, gap in known))


def _row(name: str, program: Program, target: Target, answer: Answer, stopped: str) -> LayerRow:
    product = product_of(program.layers[name])
    sizes = product_sizes(product)
    extracted, chosen = answer.layers[name], answer.variants[CHOSEN][name]
    objective = chosen.measures.get(target.objectives[0]) if target.objectives else None
    least = gap = None
    if extracted.cone is not None and objective is not None:
        proven = extracted.bound is not None and stopped == "saturated" and not chosen.off
        bound = target.bound(sizes.macs) if isinstance(target, BoundsProducts) else 0
        least = extracted.bound if proven else min(objective, bound)
        gap = None if least is None else objective - least
    elif objective is not None and isinstance(target, BoundsVariants):
        known = target.least(extracted.variants)
        least, gap = (None, None) if known is None else (min(objective, known), max(0, objective - known))
    return LayerRow(
        name=name,
        part=part_of(name, program.layers)[1],
        operator=program.labels.get(name, "") or _operator(product, sizes),
        groups=sizes.groups,
        m=sizes.m,
        k=sizes.k,
        n=sizes.n,
        macs=sizes.macs,
        variants={which: _choice(variants[name]) for which, variants in answer.variants.items()},
        front=[_choice(variant) for variant in extracted.variants] if target.front else (),
        lower_bound=least,
        gap=gap,
        utilization=_utilization(sizes.macs, chosen.measures.get("cycles"), target.peak),
        rules=() if extracted.cone is None else extracted.cone.rules,
        details=chosen.details,
        nearest_miss=chosen.off,
    )


def _utilization(macs: int, cycles: int | None, peak: int | None) -> float | None:
    if peak is None or cycles is None:
        return None
    return macs / (cycles * peak) if cycles else 0.0


def _choice(variant: Variant) -> Choice:
    return Choice(variant.label, variant.measures)


def _operator(product: Term, sizes: ProductSizes) -> str:
    """Names the operator of a product without a label."""
    assert is_product(product)
    below = {child.operator.name for pair in product.children for child in pair.children}
    if "access-windows" in below:
        return "windows product"
    return "matmul" if sizes.groups == 1 else "grouped matmul"


def _total(target: Target, answer: Answer, which: str, rows: list[LayerRow]) -> Amounts:
    """Returns measures of a whole program: the target's, or else the sums over its layers."""
    program = answer.programs.get(which)
    whole = None if program is None else target.whole(program)
    total: dict[str, int | None] = {}
    for measure in target.measures:
        of_layers = [row.variants[which].measures[measure.name] for row in rows] if rows else []
        known = [amount for amount in of_layers if amount is not None]
        if whole is not None and measure.name in whole:
            total[measure.name] = whole[measure.name]
        elif len(known) < len(of_layers):
            total[measure.name] = None
        else:
            total[measure.name] = sum(known) if measure.adds else max(known, default=0)
    return total


def _between(
    program: Program, target: Target, answer: Answer, totals: Mapping[str, Amounts]
) -> dict[str, dict[str, int | None]]:
    """Returns the measures between layers: the whole less its layers, each product once; at least 0, since times are
    rounded.
    """
    once = {id(product): name for name, product in program.layers.items()}.values()
    between: dict[str, dict[str, int | None]] = {}
    for which, total in totals.items():
        between[which] = {}
        for measure in (m.name for m in target.measures if m.adds):
            of_layers = [answer.variants[which][name].measures[measure] for name in once]
            whole = total[measure]
            unknown = whole is None or None in of_layers
            between[which][measure] = None if unknown else max(0, whole - sum(n or 0 for n in of_layers))  # type: ignore[operator]
    return between
