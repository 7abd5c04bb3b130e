"""Reads and updates the committed results of proofs: `python -m glenside.proofs`.

A result is kept with a digest of the clause, of the clauses that add rows of its relations, and of the prover's code,
so that a change of any of them is seen.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from glenside.egraph.clause import Clause
from glenside.egraph.rule import Rule

FILE = Path(__file__).with_name("status.json")
_OUTSIDE = {"status.py", "__init__.py", "__main__.py", "prove_all.py"}
"""Modules of the package that no proof depends on."""


@cache
def results() -> Mapping[str, Mapping[str, Any]]:
    """Returns `RULE#CLAUSE` -> status, cases, reason, lemmas, example, counterexample, digest; for equations alone."""
    found: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return found


def clause_names(rule: Rule) -> Iterator[tuple[str, Clause]]:
    """Yields the names and clauses of a rule that are equations; clauses count from 1."""
    for number, clause in enumerate(rule.clauses, 1):
        if any(getattr(action, "name", "") == "union" for action in clause.actions):
            yield f"{rule.name}#{number}", clause


def of_rule(rule: Rule) -> list[Mapping[str, Any]]:
    """Returns the results of a rule's equations, without digests; of a rule of one's own there are none."""
    found = ((name, results()[name]) for name, _ in clause_names(rule) if name in results())
    return [{"clause": name, **{k: v for k, v in r.items() if k != "digest"}} for name, r in found]


def summary(rule: Rule) -> str:
    """Returns how many of a rule's equations have each status, such as `3 proven, 1 undecided`."""
    counts: dict[str, int] = {}
    for result in of_rule(rule):
        word = result["status"] + (" under lemmas" if result["status"] == "proven" and result.get("lemmas") else "")
        counts[word] = counts.get(word, 0) + 1
    return ", ".join(f"{n} {word}" for word, n in counts.items()) or "no equation"


def sentences(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns a line of text for each result."""
    lines = []
    for r in results:
        of_lemmas = f", assuming {' and '.join(r['lemmas'])}" if r.get("lemmas") else ""
        cases = f" in {r['cases']} cases" if r["status"] == "proven" else ""
        reason = f": {r['reason']}" if r.get("reason") else ""
        lines.append(f"{r['clause'].rpartition('#')[2]}. {r['status']}{cases}{of_lemmas}{reason}")
    return lines


@cache
def prover_digest() -> str:
    """Returns a digest of the prover's code, without comments and docstrings."""
    digest = sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.name not in _OUTSIDE:
            digest.update(ast.dump(_without_docstrings(ast.parse(path.read_text(encoding="utf-8")))).encode())
    return digest.hexdigest()


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [n for n in body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))]
            node.body = kept  # type: ignore[attr-defined]
    return tree


def digest(clause: Clause) -> str:
    """Returns a digest of what the proof of a clause depends on."""
    from glenside.proofs.inlined_relations import origin_texts

    parts = (prover_digest(), *clause.texts, *origin_texts(clause))
    return sha256("\n".join(parts).encode()).hexdigest()[:16]


def outdated() -> list[str]:
    """Returns the names of clauses whose results are missing, or are of another clause or prover."""
    from glenside.rewrites import all_rules

    named = [pair for rule in all_rules().values() for pair in clause_names(rule)]
    return [name for name, clause in named if results().get(name, {}).get("digest") != digest(clause)]


def write(new: Mapping[str, Mapping[str, Any]]) -> None:
    """Writes results beside those that are still of a clause, in the order of names."""
    from glenside.rewrites import all_rules

    names = [name for rule in all_rules().values() for name, _ in clause_names(rule)]
    merged = {**results(), **new}
    kept = {name: merged[name] for name in sorted(names) if name in merged}
    FILE.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    results.cache_clear()
