"""What shares of nodes take of one of several equal FPGAs, as fractions of its limits."""

from __future__ import annotations

from bisect import bisect_right

from dovetail.ir import Axis, Node
from dovetail.partition.plan import Piece, Split
from dovetail.partition.problem import TOLERANCE, Problem, axes_of, price_pieces, price_reduce

Room = tuple[float, ...]
"""What is left of a board, or what a share takes of one: a fraction of every limited resource."""


def holds(left: Room, size: Room) -> bool:
    """Whether a share fits on what is left of a board."""
    return all([room >= own - TOLERANCE for room, own in zip(left, size, strict=True)])


def less(left: Room, size: Room) -> Room:
    """What is left of a board after a share was put on it."""
    return tuple([room - own for room, own in zip(left, size, strict=True)])


class BoardShares:
    """Prices of shares on one board, remembered."""

    def __init__(self, problem: Problem, board: str) -> None:
        self.problem, self.board = problem, board
        self.limits = {r: limit for r, limit in problem.limits[board].items() if limit > 0}
        self.known: dict[tuple[str, Axis | None, int, int], Room | None] = {}

    def of(self, node: Node, axis: Axis | None, start: int, stop: int) -> Room | None:
        """What a share takes of a board; None where it cannot run there."""
        key = (node.name, axis, start, stop)
        if key not in self.known:
            found = price_pieces(self.problem, node, axis, self.board, [(start, stop)])
            known = found is not None and (start, stop) in found
            self.known[key] = self._fractions(dict(found[start, stop].resources)) if found is not None and known else None
        return self.known[key]

    def of_piece(self, node: Node, split: Split, piece: Piece) -> Room | None:
        """What a piece takes, with the sum of partial sums where it is made there."""
        size = self.of(node, split.axis, piece.start, piece.stop)
        sums = self.of_sums(node, split) if split.reducer == piece.device and size is not None else None
        return size if size is None or sums is None else tuple([a + b for a, b in zip(size, sums, strict=True)])

    def of_sums(self, node: Node, split: Split) -> Room | None:
        """What adding up the partial sums of a split takes; None where a board cannot."""
        found = price_reduce(self.problem, node, len(split.pieces), self.board)
        return None if found is None else self._fractions(dict(found.resources))

    def extent(self, node: Node, axis: Axis) -> int:
        """How many filters or channels a node has along an axis; nothing where it cannot be divided along it."""
        return axes_of(self.problem, node).get(axis, 0)

    def filters(self, node: Node) -> dict[Axis, int]:
        """The axes along which boards may share a node's filters, each with how many there are."""
        return {a: n for a in (Axis.OUTPUT_CHANNELS, Axis.GROUPS) if (n := self.extent(node, a)) > 1}

    def most(self, node: Node, axis: Axis, start: int, stop: int, left: Room, last: bool = False) -> int:
        """How many of some filters or channels, the first or the last of them, fit on what is left of a board."""
        counts = range(1, stop - start + 1)
        shares = [(stop - count, stop) if last else (start, start + count) for count in counts]
        price_pieces(self.problem, node, axis, self.board, shares)  # one question takes as long for all as for one

        def too_many(count: int) -> bool:
            size = self.of(node, axis, *shares[count - 1])
            return size is None or not holds(left, size)

        return bisect_right(counts, 0, key=too_many)

    def _fractions(self, taken: dict[str, float]) -> Room:
        return tuple([taken.get(r, 0.0) / limit for r, limit in self.limits.items()])
