"""Damage of bytes between two processes, by a seeded schedule: flipped, dropped, repeated, reordered and delayed ones. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from typing import TypeAlias

from transforms.errors import InputError


class DamageKind(StrEnum):
    """What happens to a run of bytes."""

    FLIP = "flip"
    DROP = "drop"
    REPEAT = "repeat"
    REORDER = "reorder"
    DELAY = "delay"


class Direction(IntEnum):
    """The direction of a stream, from the end that connects."""

    REQUESTS = 0
    ANSWERS = 1


@dataclass(frozen=True, slots=True)
class DamagePoint:
    """One damage of a stream.

    Attributes:
        at_byte: the first byte of the run, from the beginning of the stream.
        kind: what happens to the run.
        run_bytes: its length; a reordered run changes places with as many bytes after it. A flip takes one byte.
        bit: which bit of the byte a flip changes.
        delay_secs: how long a delay lasts.
    """

    at_byte: int
    kind: DamageKind
    run_bytes: int = 1
    bit: int = 0
    delay_secs: float = 0.0


@dataclass(frozen=True, slots=True)
class DamageSettings:
    """The settings of random damage.

    Attributes:
        seed: equal seeds, connections and directions give equal points.
        mean_bytes: the mean distance between two points.
        most_run_bytes: the longest run.
        delay_secs: the longest delay.
        kinds: the kinds, each drawn equally often.
    """

    seed: int = 1
    mean_bytes: int = 1 << 20
    most_run_bytes: int = 64
    delay_secs: float = 0.05
    kinds: tuple[DamageKind, ...] = tuple(DamageKind)

    def __post_init__(self) -> None:
        for name in ("mean_bytes", "most_run_bytes"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1", value=getattr(self, name))
        if not self.kinds:
            raise InputError("at least one kind of damage must be given", allowed=", ".join(DamageKind))


#: Draws the points of a stream, in ascending order, by the number of its connection, from 0 on, and its direction.
DrawDamage: TypeAlias = Callable[[int, Direction], Iterator[DamagePoint]]


def random_damage(settings: DamageSettings) -> DrawDamage:
    """Endless points in all streams."""

    def draw_points(connection: int, direction: Direction) -> Iterator[DamagePoint]:
        draw = random.Random(f"{settings.seed}/{connection}/{direction.value}")
        at = 0
        while True:
            at += 1 + int(-settings.mean_bytes * math.log(1.0 - draw.random()))
            yield DamagePoint(at, draw.choice(settings.kinds), draw.randint(1, settings.most_run_bytes), draw.randrange(8),
                              settings.delay_secs * draw.random())  # fmt: skip

    return draw_points


def single_damage(point: DamagePoint, direction: Direction) -> DrawDamage:
    """One point in each stream of a direction, for a link that damages once: the stream that reaches it first is damaged."""

    def draw_point(connection: int, found: Direction) -> Iterator[DamagePoint]:
        return iter([point] if found is direction else [])

    return draw_point


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes to send after a delay."""

    content: bytes
    delay_secs: float = 0.0


class DamagedStream:
    """Damages the bytes of one direction of a connection.

    A repeated or reordered run ends at the end of the piece in which it begins, so that no byte waits for later ones.

    Args:
        points: in ascending order.
        count: is called with the kind of each damage that was done.
    """

    def __init__(self, points: Iterator[DamagePoint], count: Callable[[DamageKind], None] = lambda kind: None) -> None:
        self._points, self._count = points, count
        self._point = next(points, None)
        self._at = self._left_to_drop = 0

    def damage(self, piece: bytes) -> Iterator[Piece]:
        """What is sent in place of the next piece of the stream."""
        while piece:
            dropped = min(self._left_to_drop, len(piece))
            self._left_to_drop -= dropped
            piece = self._pass(piece, dropped)
            point = self._point
            if not piece or point is None or point.at_byte >= self._at + len(piece):
                break
            before = max(point.at_byte - self._at, 0)
            if before:
                yield Piece(piece[:before])
                piece = self._pass(piece, before)
            if point.kind is DamageKind.REORDER and len(piece) < 2:
                self._point = replace(point, at_byte=self._at + len(piece))
                break
            content, taken = self._damaged_run(point, piece)
            yield Piece(content, point.delay_secs if point.kind is DamageKind.DELAY else 0.0)
            piece = self._pass(piece, taken)
            self._count(point.kind)
            self._point = next(self._points, None)
        if piece:
            yield Piece(self._pass_all(piece))

    def _damaged_run(self, point: DamagePoint, piece: bytes) -> tuple[bytes, int]:
        """What takes the place of the first bytes of a piece, and their number."""
        run = piece[: point.run_bytes]
        match point.kind:
            case DamageKind.FLIP:
                return bytes([piece[0] ^ 1 << point.bit]), 1
            case DamageKind.DROP:
                self._left_to_drop = point.run_bytes
                return b"", 0
            case DamageKind.REPEAT:
                return run + run, len(run)
            case DamageKind.REORDER:
                length = min(point.run_bytes, len(piece) // 2)
                return piece[length : 2 * length] + piece[:length], 2 * length
            case DamageKind.DELAY:
                return run, len(run)

    def _pass(self, piece: bytes, count: int) -> bytes:
        self._at += count
        return piece[count:]

    def _pass_all(self, piece: bytes) -> bytes:
        self._at += len(piece)
        return piece
