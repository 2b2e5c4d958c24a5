"""Action of `dovetail prove`: the proofs of a build's hardware as a table."""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from dovetail.cli.actions.requested import open_build
from dovetail.cli.output import emit
from dovetail.errors import UsageError
from dovetail.fpga.proofs.verdicts import Proof, Ruling
from dovetail.runtime.proofs import prove_build
from dovetail.terminal import table


def prove_command(options: argparse.Namespace) -> int:
    """Run `dovetail prove`; 1 where something is refuted."""
    if not options.limit > 0:
        raise UsageError(f"--limit {options.limit:g}: not a time; give seconds above 0")
    proofs = prove_build(open_build(options), lambda p: print(f"  {line(p)}", file=sys.stderr, flush=True), options.limit)
    counts = Counter(proof.status for proof in proofs)
    document = {"schema": 1, "counts": {status.value: counts[status] for status in Ruling},
                "proofs": [proof.document() for proof in proofs]}
    emit(options.json, document, lambda: proof_table(proofs))
    return 1 if counts[Ruling.REFUTED] else 0


def line(proof: Proof) -> str:
    """One proof as it is made."""
    return f"{proof.part}: {proof.states}: {proof.status.value}, {proof.seconds:.1f} s"


def proof_table(proofs: list[Proof]) -> str:
    """All proofs, and how many of each kind."""
    rows = [[p.part, p.family, p.states, p.status.value, p.method.value, p.size, f"{p.seconds:.1f}", p.detail] for p in proofs]
    counts = Counter(p.status for p in proofs)
    told = ", ".join(f"{counts[status]} {status.value}" for status in Ruling if counts[status])
    found = table(["part", "family", "statement", "verdict", "method", "over", "s", "note"], rows, right=(6,))
    return f"{found}\n{told or 'no FPGA part'}"
