"""The result of an optimization: the answer, its report, and the check that the two programs are equal."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from glenside.check import AS_REALS, EXACT, CheckReport, check, check_gradient, is_equal
from glenside.codegen.lowering.quantized_weights import with_quantized_weights
from glenside.egraph.saturation import INTERRUPTED, LIMITS
from glenside.egraph.snapshot import Snapshot
from glenside.ir.errors import BadInput, GlensideError
from glenside.ir.names import one_line
from glenside.ir.program import Program
from glenside.passes.answer import CHOSEN, Answer
from glenside.passes.distinct_layers import of_products
from glenside.report.report import Report
from glenside.targets.base import Amounts, Compiles, Extracted, MovesLayouts, Rounds, Target, Variant

if TYPE_CHECKING:
    from glenside.report.egraph_view import EGraphView


class Found(Protocol):
    """The answer of an optimization: an `Answer`, or one from the cache, which searches again if it must."""

    @property
    def program(self) -> Program: ...
    @property
    def compared(self) -> Program: ...
    @property
    def prepared(self) -> Program: ...
    @property
    def egraph(self) -> Snapshot: ...
    @property
    def choice(self) -> Mapping[int, int]: ...
    @property
    def roots(self) -> Mapping[str, int]: ...
    @property
    def stands_for(self) -> Mapping[int, int]: ...
    @property
    def programs(self) -> Mapping[str, Program]: ...
    @property
    def layers(self) -> Mapping[str, Extracted]: ...
    @property
    def fronts(self) -> Mapping[str, Sequence[Variant]]: ...


@dataclass(repr=False)
class Result:
    """The optimized program, its cost, and the answer of the search.

    answer the program and everything that it was chosen from
    """

    original: Program
    target: Target
    report: Report
    answer: Found
    seed: int = 0
    interrupted: bool = False
    not_kept: GlensideError | None = None

    @property
    def program(self) -> Program:
        """The optimized program."""
        return self.answer.program

    @property
    def prepared(self) -> Program:
        """The program whose layers were searched: the original with folded constants."""
        return self.answer.prepared

    @property
    def standard(self) -> Program:
        """The program for a file of standard operators: the optimized one, the one whose layers were searched, or the
        original.

        If the target leaves the algorithm or the layout of a layer to runtimes, the optimized program is written only
        if it moves less data and has no more nodes of any operator; otherwise the program whose layers were searched is
        written. If that one has more nodes than the original, as sums of integers may, the original is written. The
        check holds for all three, since it compares layer by layer. Raises BadInput if such a file cannot express the
        program.
        """
        if isinstance(self.target, Compiles) and self.target.leaves_variants_to_runtimes:
            from glenside.exporters.onnx import moved

            prepared = of_products(self.prepared)
            (nodes, _), (came, _) = moved(prepared), moved(self.original)
            return prepared if nodes.total() <= came.total() else self.original
        if isinstance(self.target, MovesLayouts) and self.target.leaves_layouts_to_runtimes:
            from glenside.exporters.onnx import moved

            (nodes, moves), (came, moves_before) = moved(self.program), moved(self.prepared)
            return self.program if nodes <= came and moves < moves_before else self.prepared
        return self.program

    @cached_property
    def baselines(self) -> Mapping[str, Program]:
        """The program with the baseline of every layer, for baselines that are built and not only costed."""
        return {name: program for name, program in self.answer.programs.items() if program is not self.program}

    @property
    def egraph(self) -> Snapshot:
        return self.answer.egraph

    @property
    def view(self) -> EGraphView:
        """The e-graph as a widget or a picture in a notebook, and as a page by `view.page()`. With `optimize(..,
        trace=True)` it names the rule of each e-node.
        """
        from glenside.report.egraph_view import EGraphView

        return EGraphView.of(self)

    def page(self) -> str:
        """Returns the report as one HTML file that fetches nothing: tables, plots, each layer, its tiles and its
        e-graph.
        """
        from glenside.report.report_page import result_document

        return result_document(self).html()

    @property
    def choice(self) -> Mapping[int, int]:
        """class -> e-node"""
        return self.answer.choice

    @property
    def cost(self) -> Amounts:
        """Measures of the whole program."""
        return self.report.total

    @property
    def stopped(self) -> str:
        """Why the search ended: saturated, node-limit, time-limit, iteration-limit, memory-limit or interrupted."""
        return self.report.stopped

    def require_mapped(self) -> None:
        """Raises BadInput with the first unmapped layer and the limit, if a limit ended the search before it was
        mapped.
        """
        row = next((row for row in self.report.layers if not row.mapped), None)
        if row is None or self.stopped not in LIMITS:
            return
        what, option = LIMITS[self.stopped]
        said = f"the layer {one_line(row.name)} had no mapping yet when the search ended at its limit of {what}"
        raise BadInput(f"{said}: a greater {option} lets it go on, or in Python that of gl.Limits")

    def compared(self, progress: Callable[[int, int], None] | None = None) -> CheckReport:
        """Compares the two programs exactly, layer by layer and as a whole."""
        if self.program is self.original:
            return CheckReport(dict.fromkeys(self.original.layers, EXACT), EXACT, "it is the program itself", 0.0)
        source = self.original if self.prepared is not self.original else None
        if source is not None and not {*self.prepared.constants_declared} <= {*source.constants_declared}:
            source = with_quantized_weights(source)  # which compares all new constants with those that they replace
        return check(self.prepared, self.answer.compared, source=source, seed=self.seed, progress=progress)

    def check(
        self, progress: Callable[[int, int], None] | None = None, verdict: CheckReport | None = None
    ) -> CheckReport:
        """Compares the two programs exactly, layer by layer and as a whole, and records the verdict in the report.
        `verdict` is the result of `compared`, if the caller has it.

        A layer is compared in the form in which it was searched: its weights may contain a scale that followed it. A
        layer that is no longer computed, since its scale was folded into its weights later, has the verdict of the
        whole program. If the target rounds, exact layers are reported as equal as reals, and a remark states the bound
        of the rounding error and the largest error observed. A gradient from `gl.gradient` is also compared with the
        program that it differentiates: a remark states how many gradients are exact.
        """
        started, compared = time.perf_counter(), self.answer.compared
        verdict = verdict or self.compared(progress)
        rounds = isinstance(self.target, Rounds) and self.target.rounds(self.program)
        if rounds:
            verdict = _of_rounded(verdict)
        verdict = self._of_gradient(verdict, progress)
        of_layer = {name: verdict.result for name in self.prepared.layers if name not in compared.layers}
        of_layer |= verdict.layers
        rows = [replace(row, checked=of_layer.get(row.name, "not checked")) for row in self.report.layers]
        self.report.layers[:] = rows
        self.report.checked, self.report.how_checked = verdict.result, verdict.how
        self.interrupted = verdict.stopped == INTERRUPTED
        if rounds and isinstance(self.target, Rounds) and is_equal(verdict.result) and isinstance(self.answer, Answer):
            observed = self.target.observed([*self.answer.variants[CHOSEN].values()], self.seed)
            self.report.remarks = [*dict.fromkeys([*self.report.remarks, *([observed] if observed else [])])]
        self.report.seconds["check"] = time.perf_counter() - started
        return verdict

    def _of_gradient(self, verdict: CheckReport, progress: Callable[[int, int], None] | None) -> CheckReport:
        """Returns the verdict, or a failed one if the original is a gradient of a program and the check of that
        gradient fails.
        """
        said = self.original.gradient_of
        if said is None or verdict.stopped:
            return verdict
        found = check_gradient(
            said.program,
            self.original,
            said.wrt,
            of=said.of,
            cotangents=said.cotangents,
            seed=self.seed,
            progress=progress,
        )
        exact = [name for name, text in found.gradients.items() if text == EXACT]
        remark = f"gradients of {said.program.name}: {len(exact)} of {len(found.gradients)} exact; {found.how}"
        self.report.remarks = [*dict.fromkeys([*self.report.remarks, remark])]
        wrong = next((text for text in (found.value or EXACT, *found.gradients.values()) if not is_equal(text)), "")
        if not wrong or not is_equal(verdict.result):
            return verdict
        return replace(verdict, result=wrong, stopped=found.stopped)

    def __repr__(self) -> str:
        taken = ", ".join(f"{amount:,} {name}" for name, amount in self.cost.items() if amount is not None)
        mapped = self.report.mapped_words.replace(" mapped", " layers mapped", 1)
        return f"<{self.original.name} on {self.target.name}: {mapped}, {taken}, {self.stopped}>"

    def _repr_html_(self) -> str:
        from glenside.report.text import report_html

        return report_html(self.report)


def _of_rounded(verdict: CheckReport) -> CheckReport:
    """Replaces the verdict exact by equal as reals."""

    def said(result: str) -> str:
        return AS_REALS if result == EXACT else result

    layers = {name: said(result) for name, result in verdict.layers.items()}
    return replace(verdict, layers=layers, result=said(verdict.result))
