"""Proves the clauses whose results are not current, or those of the rules that are named.

python -m glenside.proofs [RULE ..]
"""

from __future__ import annotations

import sys

from glenside.proofs.prove_all import prove_all

if __name__ == "__main__":
    prove_all(sys.argv[1:])
