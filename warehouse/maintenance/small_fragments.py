"""Choose the small fragments to merge, and when a table has too many of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from transforms.errors import InputError


@dataclass(frozen=True, slots=True)
class Piece:
    """A unit of computation: a fragment, or a merged one, from the start of its first member to the end of its last."""

    row: int
    start: datetime
    end: datetime
    rows: int


@dataclass(frozen=True, slots=True)
class MergePolicy:
    """The limits of merging fragments.

    Attributes:
        most_rows: Events of a merged fragment.
        enough_rows: With this many events, a merged fragment ends with its day.
        many_pieces: This many fragments are merged even if nearly all events are in one of them.
        least_share: Otherwise the others must hold this share of the events, which bounds what is written again.
    """

    most_rows: int = 1_000_000
    enough_rows: int = 100_000
    many_pieces: int = 8
    least_share: float = 0.1

    def __post_init__(self) -> None:
        if self.most_rows < 2:
            raise InputError("rows of a merged fragment must be >= 2", where="--rows", value=self.most_rows)

    def is_worth_it(self, pieces: Sequence[Piece]) -> bool:
        """Whether these pieces are merged."""
        if len(pieces) < 2:
            return False
        rows = sum(piece.rows for piece in pieces)
        others = rows - max(piece.rows for piece in pieces)
        return len(pieces) >= self.many_pieces or others >= self.least_share * rows


def _last_moment(piece: Piece) -> datetime:
    return piece.end - timedelta(microseconds=1)


def choose_merges(pieces: Iterable[Piece], policy: MergePolicy) -> tuple[tuple[Piece, ...], ...]:
    """The groups to merge, of pieces that follow each other in time order; a repetition finds none."""
    groups: list[tuple[Piece, ...]] = []
    open_group: list[Piece] = []
    for piece in pieces:
        rows = sum(one.rows for one in open_group)
        new_day = bool(open_group) and piece.start.date() > _last_moment(open_group[-1]).date()
        if open_group and (rows + piece.rows > policy.most_rows or (new_day and rows >= policy.enough_rows)):
            groups.append(tuple(open_group))
            open_group = []
        open_group.append(piece)
    groups.append(tuple(open_group))
    return tuple(group for group in groups if policy.is_worth_it(group))
