"""Proves the clauses whose results are not current, or those of the rules that are named.

python -m glenside.proofs [RULE ..]
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from multiprocessing import get_context
from typing import Any

from glenside.ir.names import suggestion
from glenside.proofs import status
from glenside.proofs.prove_rule import prove_clause
from glenside.rewrites import all_rules


def proven(name: str) -> tuple[str, dict[str, Any], float]:
    """Returns the name of a clause, its result, and processor seconds."""
    rule, _, number = name.rpartition("#")
    clause = all_rules()[rule].clauses[int(number) - 1]
    start = time.process_time()
    found = prove_clause(clause)
    assert found is not None
    result = {
        "status": found.verdict.value,
        "cases": found.cases,
        "reason": found.reason,
        "lemmas": list(found.lemmas),
        "example": found.example,
        "counterexample": str(found.counterexample or ""),
        "digest": status.digest(clause),
    }
    return name, {k: v for k, v in result.items() if v not in ("", 0, [])}, time.process_time() - start


def prove_all(arguments: Sequence[str]) -> None:
    """Proves the clauses of these rules, or else those whose results are not current; prints a line for each."""
    if unknown := [name for name in arguments if name not in all_rules()]:
        raise SystemExit(f"no rule is named {unknown[0]}{suggestion(unknown[0], all_rules())}")
    rules = [all_rules()[name] for name in arguments]
    names = [n for rule in rules for n, _ in status.clause_names(rule)] if rules else status.outdated()
    counts, seconds = Counter[str](), 0.0
    with get_context("spawn").Pool(2) as pool:
        new: dict[str, dict[str, Any]] = {}
        for name, result, spent in pool.imap_unordered(proven, names):
            new[name] = result
            counts[result["status"]] += 1
            seconds += spent
            print(
                f"{name}: {result['status']} {result.get('cases', 0)} cases, {spent:.1f} s {result.get('reason', '')}",
                flush=True,
            )
            if len(new) % 20 == 0:
                status.write(new)
    status.write(new)
    print(f"{len(new)} clauses in {seconds:.0f} processor seconds: {dict(counts)}")
