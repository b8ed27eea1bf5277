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


#: An instruction: its name and the rest of its line.
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = (.*)$", re.MULTILINE)
_OPERANDS = re.compile(r"%([\w.\-]+)")
_CALLS = re.compile(r"\bcalls=%?([\w.\-]+)")
_PARAMETER = re.compile(r"\bparameter\((\d+)\)")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$", re.MULTILINE)
_OPERATION = re.compile(r"^(?:\(.*?\)|\S+) ([\w\-]+)\((.*)$")


def exchanged(text: str) -> dict[str, Any]:
    """What a program exchanges, for one device.

    ``collectives``: how often each kind, an all-reduce of which a device keeps a part as a reduce-scatter, and ``collective_bytes``: of their results; ``entering`` and ``leaving``: the number and the bytes of
    the arguments and results that are not state, which stays on the device; ``host_calls``: operations that wait for the host; ``gathers``: operations
    that pick rows, those of programs of SparseCores with them.
    """
    found = _COLLECTIVE.findall(text)
    scattered = len(scattered_sums(text))
    kinds = Counter(kind for _, kind, _ in found) + Counter({"reduce-scatter": scattered})
    kinds["all-reduce"] -= scattered
    entering, leaving = _crossing(text)
    return {
        "collectives": dict(sorted((+kinds).items())),
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


def scattered_sums(text: str) -> set[str]:
    """The names of the all-reduces of a program that stand for a reduce-scatter: the compiler of TPUs writes one as a sum and the part that a device keeps.

    They are those whose results nothing but a ``dynamic-slice`` of a device's part reads, also inside fusions.
    """
    computations = _computations(text)
    users: dict[str, list[tuple[str, str, str]]] = {}
    sums: dict[str, int] = {}
    for own in computations.values():
        for name, line in own.items():
            operation = _OPERATION.match(line)
            if operation is None:
                continue
            kind, operands = operation[1], operation[2].split(")", 1)[0]
            if kind in ("all-reduce", "all-reduce-start"):
                sums[name] = _sizes(line.split(f" {kind}(")[0])[0] // _group_size(line)
            for operand in _OPERANDS.findall(operands):
                users.setdefault(operand, []).append((name, kind, line))

    def is_kept_in_part(name: str, part_bytes: int) -> bool:
        found = users.get(name, [])
        return bool(found) and all(keeps_a_part(name, part_bytes, *user) for user in found)

    def keeps_a_part(operand: str, part_bytes: int, name: str, kind: str, line: str) -> bool:
        if kind == "dynamic-slice":
            return _sizes(line.split(" dynamic-slice(")[0])[0] == part_bytes
        if kind in ("all-reduce-done", "bitcast", "copy", "reshape"):
            return is_kept_in_part(name, part_bytes)
        called = _CALLS.search(line)
        if kind != "fusion" or called is None:
            return False
        operands = _OPERANDS.findall(line.split(" fusion(", 1)[1].split(")", 1)[0])
        places = {str(place) for place, one in enumerate(operands) if one == operand}
        inner = computations.get(called[1], {})
        parameters = [one for one, text in inner.items() if (at := _PARAMETER.search(text)) and at[1] in places]
        return all(is_kept_in_part(one, part_bytes) for one in parameters)

    return {name for name, part_bytes in sums.items() if is_kept_in_part(name, part_bytes)}


def _group_size(line: str) -> int:
    """The devices of a group of a collective; 1 where it names none."""
    if counted := _COUNTED.search(line):
        return int(counted[1].split(",")[-1])
    listed = _LISTED.search(line)
    groups = _GROUP.findall(listed[1]) if listed else []
    return groups[0].count(",") + 1 if groups else 1


def _computations(text: str) -> dict[str, dict[str, str]]:
    """The instructions of each computation of a program, by their names."""
    starts = list(_COMPUTATION.finditer(text))
    ends = [*(one.start() for one in starts[1:]), len(text)][: len(starts)]
    return {
        start[1]: dict(_INSTRUCTION.findall(text[start.end() : end])) for start, end in zip(starts, ends, strict=True)
    }


def exchanged_along(text: str, groups: Sequence[Sequence[int]]) -> dict[str, list[int]]:
    """The collectives of a program by groups of devices: of each kind the number and the bytes of the results, as the program has them."""
    wanted, devices = {frozenset(group) for group in groups}, sum(map(len, groups))
    found: dict[str, list[int]] = {}
    for line in text.splitlines():
        match = _COLLECTIVE.search(line)
        if match is None or {frozenset(group) for group in _groups(line, devices)} != wanted:
            continue
        shape, kind, start = match.groups()
        counts = found.setdefault(kind, [0, 0])
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
