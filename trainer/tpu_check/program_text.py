"""What an optimized program exchanges, read from its text: between devices, and between the host and each device. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

#: A collective with the shape of its result. An asynchronous one is counted by its start.
_COLLECTIVE = re.compile(
    r"= (\S.*?) (all-to-all|ragged-all-to-all|all-reduce|all-gather|reduce-scatter|collective-permute)(-start)?\("
)
#: The type and the dimensions of an array.
_ARRAY = re.compile(r"\b(pred|[a-z]+\d+(?:e\d+m\d+\w*)?)\[([\d,]*)\]")
_GATHER = re.compile(r" gather\(")
#: Operations by which a program calls its host while it runs.
_HOST_CALL = re.compile(r" (?:infeed|outfeed)\(|is_host_transfer=true")
_LAYOUT = re.compile(r"entry_computation_layout=\{\((.*?)\)->(.*)$", re.MULTILINE)
_ALIASES = re.compile(r"input_output_alias=\{ (.*?) \}, ")
_ALIAS = re.compile(r"\{(\d*)\}: \((\d+),")
#: Groups of devices as lists, as pairs, or as ``[groups,size]<=[dimensions]T(order)``.
_LISTED = re.compile(r"(?:replica_groups|source_target_pairs)=\{((?:\{[\d,]*\},?)*)\}")
_GROUP = re.compile(r"\{([\d,]+)\}")
_COUNTED = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_BITS = re.compile(r"\d+")


def exchanged(text: str) -> dict[str, Any]:
    """What a program exchanges, for one device.

    ``collectives``: how often each kind, and ``collective_bytes``: of their results; ``entering`` and ``leaving``: the number and the bytes of
    the arguments and results that are not state, which stays on the device; ``host_calls``: operations that wait for the host; ``gathers``: operations
    that pick rows, those of programs of SparseCores with them.
    """
    found = _COLLECTIVE.findall(text)
    entering, leaving = _crossing(text)
    return {
        "collectives": dict(sorted(Counter(kind for _, kind, _ in found).items())),
        "collective_bytes": sum(_result_bytes(shape, kind, bool(start)) for shape, kind, start in found),
        "entering": [len(entering), sum(entering)],
        "leaving": [len(leaving), sum(leaving)],
        "host_calls": len(_HOST_CALL.findall(text)),
        "gathers": len(_GATHER.findall(text)),
    }


def exchanged_by_hosts(text: str, host_of: Sequence[int]) -> dict[str, dict[str, list[int]]]:
    """The collectives of a program between hosts and inside them: of each kind the number, and the bytes of the results on one device.

    ``host_of``: the host of each device, by its position in the program. ``inside`` are those whose groups have devices of one host each. Raises
    :class:`ValueError` for a collective whose groups are written in another way than is known.
    """
    found: dict[str, dict[str, list[int]]] = {"between": {}, "inside": {}}
    for line in text.splitlines():
        match = _COLLECTIVE.search(line)
        if match is None:
            continue
        shape, kind, start = match.groups()
        is_inside = all(len({host_of[device] for device in group}) == 1 for group in _groups(line, len(host_of)))
        counts = found["inside" if is_inside else "between"].setdefault(kind, [0, 0])
        counts[0] += 1
        counts[1] += _result_bytes(shape, kind, bool(start))
    return found


def _groups(line: str, devices: int) -> list[list[int]]:
    """The groups of devices of a collective; those of a permutation are its pairs."""
    if listed := _LISTED.search(line):
        groups = [[int(one) for one in group.split(",")] for group in _GROUP.findall(listed[1])]
        return groups or [list(range(devices))]
    if counted := _COUNTED.search(line):
        sizes, dims = ([int(one) for one in part.split(",")] for part in counted.group(1, 2))
        order = [int(one) for one in counted[3].split(",")] if counted[3] else list(range(len(dims)))
        flat = _transposed(dims, order)
        return [flat[first : first + sizes[-1]] for first in range(0, len(flat), sizes[-1])]
    raise ValueError(f"the groups of a collective must be lists or counts of devices, got {line.strip()[:200]!r}")


def _transposed(dims: Sequence[int], order: Sequence[int]) -> list[int]:
    """The numbers from 0 on, of an array of these dimensions, in the order of its transposition."""
    found = []
    for place in product(*(range(dims[axis]) for axis in order)):
        number = 0
        for axis, size in enumerate(dims):
            number = number * size + place[order.index(axis)]
        found.append(number)
    return found


def _crossing(text: str) -> tuple[list[int], list[int]]:
    """The bytes of each argument and of each result that no other one replaces."""
    layout, aliases = _LAYOUT.search(text), _ALIASES.search(text)
    if layout is None:
        return [], []
    pairs = _ALIAS.findall(aliases[1]) if aliases else []
    results, arguments = {int(one or 0) for one, _ in pairs}, {int(one) for _, one in pairs}
    sizes_in, sizes_out = _sizes(layout[1]), _sizes(_until_closed(layout[2]))
    return (
        [size for k, size in enumerate(sizes_in) if k not in arguments],
        [size for k, size in enumerate(sizes_out) if k not in results],
    )


def _until_closed(text: str) -> str:
    """A text up to the brace that closes what began before it."""
    depth = 0
    for k, one in enumerate(text):
        depth += (one == "{") - (one == "}")
        if depth < 0:
            return text[:k]
    return text


def _result_bytes(shape: str, kind: str, is_start: bool) -> int:
    """The bytes that a device has after a collective; the start of one but an all-reduce has its operands before its results."""
    sizes = _sizes(shape)
    return sum(sizes if not is_start or kind == "all-reduce" else sizes[len(sizes) // 2 :])


def _sizes(text: str) -> list[int]:
    """The bytes of each array of a type."""
    return [
        -(-prod(int(one) for one in dims.split(",") if one) * _bits(kind) // 8) for kind, dims in _ARRAY.findall(text)
    ]


def _bits(kind: str) -> int:
    """The bits of an element; a truth value takes a byte."""
    found = _BITS.search(kind)
    return 8 if found is None else int(found[0])
