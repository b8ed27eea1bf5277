"""Small mutations of documents and bytes, drawn from a seed."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

#: What stands where something else should.
_ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 2**31 - 1, 2**31, 2**40, 2**63 - 1, 2**63, -(2**63), 10**30, 0.5, -1.5, 1e308,
    float("inf"), float("nan"), "", "x", "0", "é", "\0", "\ud800", "../../etc/passwd", "/etc/passwd", "a/../b",
    "memos/../../x", "gs://bucket/x", "0" * 64, "f" * 64, "F" * 64, "a" * 100_000, "2026-01-01", "int64", "string", "vector",
    [], [[]], [0], [None], ["x"], [0, 0], {}, {"": 0}, {"float": "0x1p+9999"}, {"float": "x"}, {"format": "x"},
)  # fmt: skip


def mutated(document: Any, draws: random.Random) -> Any:
    """A copy of a JSON document with one to three damages."""
    whole = [copy.deepcopy(document)]
    for _ in range(draws.choice((1, 1, 2, 3))):
        _damage(whole, draws)
    return whole[0]


def mutated_text(document: Any, draws: random.Random) -> bytes:
    """JSON text of a document, most often damaged in its values, else in its letters."""
    if draws.random() < 0.7:
        return json.dumps(mutated(document, draws)).encode()
    return mutated_bytes(json.dumps(document).encode(), draws)


def mutated_bytes(content: bytes, draws: random.Random) -> bytes:
    """Bytes flipped, overwritten, cut out, repeated, or cut off."""
    found = bytearray(content)
    for _ in range(draws.choice((1, 1, 2, 5))):
        at = draws.randrange(len(found)) if found else 0
        length = min(draws.choice((1, 1, 2, 4, 8, 64)), len(found) - at)
        match draws.randrange(6):
            case 0 | 1 if found:
                found[at] ^= 1 << draws.randrange(8)
            case 2:
                found[at : at + length] = draws.choice((b"\0", b"\xff", b"\x7f", b"\x80")) * length
            case 3:
                found[at : at + length] = draws.randbytes(length)
            case 4:
                found[at:at] = found[at : at + length]
            case _:
                del found[at : at + length if draws.random() < 0.7 else len(found)]
    return bytes(found)


def _damage(whole: list[Any], draws: random.Random) -> None:
    holder, key = draws.choice(_places(whole))
    value = holder[key]
    match draws.randrange(8):
        case 0 | 1 | 2:
            holder[key] = copy.deepcopy(draws.choice(_ODD))
        case 3:
            del holder[key]
            if not whole:
                whole.append(None)
        case 4 if isinstance(holder, list):
            holder.insert(draws.randrange(len(holder) + 1), copy.deepcopy(value))
        case 4:
            holder[draws.choice(("x", "", "type", f"{key} "))] = holder.pop(key)
        case 5 if isinstance(value, int) and not isinstance(value, bool):
            holder[key] = value + draws.choice((-1, 1, 2, 64, 10**6))
        case 5 | 6 if isinstance(value, str) and value:
            at = draws.randrange(len(value))
            holder[key] = value[:at] + draws.choice(("", "0", "z", "\x1b", "\ud800", value)) + value[at + 1 :]
        case _:
            other, there = draws.choice(_places(whole))
            holder[key] = copy.deepcopy(other[there])


def _places(whole: list[Any]) -> list[tuple[Any, Any]]:
    """Every value of a document, by what holds it and under which key."""
    found: list[tuple[Any, Any]] = []
    ahead: list[Any] = [whole]
    while ahead:
        holder = ahead.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            found.append((holder, key))
            if isinstance(holder[key], dict | list):
                ahead.append(holder[key])
    return found
