"""Compiled part of ``url_registered_domain``: public suffix rules in a hash table over the bytes of their names."""

from __future__ import annotations

from typing import Any

import numpy as np

from transforms.arrays import Array
from transforms.kernels.compiled import compiled, uncounted
from transforms.kernels.farmhash import fingerprint64
from transforms.kernels.web_urls import is_digit

_DOT, _OPEN = ord("."), ord("[")
_SUFFIX, _WILDCARD, _EXCEPTION, _ABOVE_RULE = np.uint8(1), np.uint8(2), np.uint8(4), np.uint8(8)


@compiled
def slots_of(data: Array, offsets: Array) -> Array:
    """A table with open addressing, half empty or more: the position of the name in each slot, or -1."""
    size = 2
    while size < 2 * len(offsets):
        size *= 2
    slots = np.full(size, -1, np.int32)
    for name in range(len(offsets) - 1):
        slot = np.int64(fingerprint64(data, offsets[name], offsets[name + 1] - offsets[name]) & np.uint64(size - 1))
        while slots[slot] >= 0:
            slot = (slot + 1) & (size - 1)
        slots[slot] = name
    return slots


@uncounted
def _rule_of(
    data: Array, start: Any, end: Any, slots: Array, kinds: Array, offsets: Array, names: Array
) -> Any:  # numba compiles no classes: the table comes as its arrays
    """The kinds of rules that a name has, or 0."""
    slot = np.int64(fingerprint64(data, start, end - start) & np.uint64(len(slots) - 1))
    while slots[slot] >= 0:
        name = slots[slot]
        size = offsets[name + 1] - offsets[name]
        same = size == end - start
        if same:
            for i in range(size):
                if names[offsets[name] + i] != data[start + i]:
                    same = False
                    break
        if same:
            return kinds[name]
        slot = (slot + 1) & (len(slots) - 1)
    return np.uint8(0)


@uncounted
def _is_named(data: Array, start: Any, end: Any) -> bool:
    """Whether a host is a name: no address, no empty label."""
    if start == end or data[start] == _OPEN or data[start] == _DOT or data[end - 1] == _DOT:
        return False
    last = start
    for at in range(start + 1, end):
        if data[at] == _DOT:
            if data[at - 1] == _DOT:
                return False
            last = at + 1
    for at in range(last, end):  # noqa: SIM110 - numba compiles no generators
        if not is_digit(data[at]):
            return True
    return False


@uncounted
def _label_start(data: Array, start: Any, end: Any) -> Any:
    """The start of the last label before ``end``."""
    at = end
    while at > start and data[at - 1] != _DOT:
        at -= 1
    return at


@uncounted
def _registered(data: Array, start: Any, end: Any, slots: Array, kinds: Array, offsets: Array, names: Array) -> Any:
    """The start of the registered domain; -1 if there is none."""
    label = _label_start(data, start, end)
    suffix = previous = label
    while True:
        rule = _rule_of(data, label, end, slots, kinds, offsets, names)
        if rule & _EXCEPTION:
            suffix = previous
            break
        if rule & _SUFFIX:
            suffix = label
        if label == start:
            break
        above = _label_start(data, start, label - 1)
        if rule & _WILDCARD:
            suffix = above
        if not rule & _ABOVE_RULE:
            break
        previous, label = label, above
    return _label_start(data, start, suffix - 1) if suffix > start else np.int64(-1)


@compiled
def registered_domains(
    data: Array,
    starts: Array,
    ends: Array,
    slots: Array,
    kinds: Array,
    offsets: Array,
    names: Array,
) -> tuple[Array, Array]:
    """The span of each host's registered domain; -1 if it has none."""
    begins, stops = np.empty(len(starts), np.int32), np.empty(len(starts), np.int32)
    for row in range(len(starts)):
        start, end = np.int64(starts[row]), np.int64(ends[row])
        if end > start and data[end - 1] == _DOT:
            end -= 1
        named = _is_named(data, start, end)
        begins[row] = _registered(data, start, end, slots, kinds, offsets, names) if named else -1
        stops[row] = end
    return begins, stops
