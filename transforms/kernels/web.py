"""Kernels of the web family. The parts of a URL or a document are spans of its bytes, copied only if they change."""

from __future__ import annotations

from functools import cache

import numpy as np

from transforms.arrays import Array
from transforms.columns.columns import Column, RaggedItems, Strings
from transforms.columns.positions import check_positions
from transforms.errors import DataError
from transforms.kernels import web_addresses, web_devices, web_json, web_suffixes, web_urls
from transforms.kernels.buffers import byte_bound, piece_bound, spans
from transforms.kernels.spans import frozen
from transforms.operators.json_path import Step, steps_of
from transforms.operators.public_suffixes import Rule, rules_by_ending


def url_scheme(column: Column) -> Column:
    """The scheme of each URL, in lower case."""
    strings = _strings(column)
    return _lowered(_found(strings, *web_urls.schemes(*spans(strings))))


def url_host(column: Column) -> Column:
    """The host of each URL, in lower case."""
    strings = _strings(column)
    return _lowered(_found(strings, *web_urls.hosts(*spans(strings), False)))


def url_registered_domain(column: Column) -> Column:
    """The registered domain of each URL or bare host."""
    strings = _strings(column)
    hosts = _lowered(_found(strings, *web_urls.hosts(*spans(strings), True)))
    data, starts, ends = spans(hosts)
    return _found(hosts, *web_suffixes.registered_domains(data, starts, ends, *_rules()))


def url_path_tokens(column: Column) -> Column:
    """The decoded segments of each URL's path."""
    strings = _strings(column)
    data, starts, ends = spans(strings)
    offsets, starts, ends = web_urls.path_segments(data, starts, ends, piece_bound(starts, ends))
    return RaggedItems(offsets, _decoded(Strings(strings.data, starts, ends), plus_is_space=False))


def url_query_parameter(column: Column, *, name: str) -> Column:
    """The decoded value of one query parameter of each URL."""
    strings = _strings(column)
    values = web_urls.parameter_values(*spans(strings), frozen(np.frombuffer(name.encode(), np.uint8)))
    return _decoded(_found(strings, *values), plus_is_space=True)


def ip_prefix(column: Column, *, v4_bits: int, v6_bits: int) -> Column:
    """The network of each address."""
    strings = _strings(column)
    check_positions(len(strings) * web_addresses.PREFIX_BYTES_MAX, "bytes of prefixes")
    data, starts, ends, valid = web_addresses.prefixes(*spans(strings), v4_bits, v6_bits)
    return Strings(data, starts, ends, valid)


def device_model(column: Column) -> Column:
    """The canonical form of each device string."""
    strings = _strings(column)
    data, starts, ends = spans(strings)
    data, starts, ends = web_devices.models(data, starts, ends, byte_bound(starts, ends))
    left = ends > starts
    return Strings(data, starts, ends, left if strings.valid is None else left & strings.valid)


def json_extract(column: Column, *, path: str) -> Column:
    """The value at ``path`` of each document: strings without quotes, other values as they are written."""
    strings = _strings(column)
    steps = steps_of(path)
    if steps is None:
        raise DataError("the path must be a JSON path", value=path)
    data, starts, ends = spans(strings)
    starts, ends = (frozen(array) for array in web_json.values_at(data, starts, ends, *_compiled_steps(steps)))
    data, starts, ends, valid = web_json.unquoted(data, starts, ends, byte_bound(starts, ends))
    return Strings(data, starts, ends, valid)


def _compiled_steps(steps: tuple[Step, ...]) -> tuple[Array, Array, Array]:
    """(indices: the position an item has, or -1 where a member is named; ends of the names; bytes of the names)."""
    names = [step.encode() if isinstance(step, str) else b"" for step in steps]
    indices = np.array([step if isinstance(step, int) else -1 for step in steps], np.int64)
    ends = np.cumsum([0, *map(len, names)], dtype=np.int64)
    return frozen(indices), frozen(ends), frozen(np.frombuffer(b"".join(names), np.uint8))


@cache
def _rules() -> tuple[Array, Array, Array, Array]:
    """The public suffix rules as a hash table: (slots, the kinds of rules, offsets and bytes of the names)."""
    names = sorted(rules_by_ending())
    encoded = [name.encode() for name in names]
    data = frozen(np.frombuffer(b"".join(encoded), np.uint8))
    offsets = frozen(np.cumsum([0, *map(len, encoded)], dtype=np.int32))
    kinds = frozen(np.array([rules_by_ending()[name] for name in names], np.uint8))
    assert [int(rule) for rule in Rule] == [1, 2, 4, 8], "the kernel reads these numbers"
    return frozen(web_suffixes.slots_of(data, offsets)), kinds, offsets, data


def _strings(column: Column) -> Strings:
    if not isinstance(column, Strings):
        raise DataError("the argument of a text kernel must be text", value=type(column).__name__)
    return column


def _found(strings: Strings, starts: Array, ends: Array) -> Strings:
    """Spans of the same bytes; where one starts before the buffer nothing was found."""
    found = starts >= 0
    valid = found if strings.valid is None else found & strings.valid
    return Strings(strings.data, np.where(found, starts, 0), np.where(found, ends, 0), valid)


def _lowered(strings: Strings) -> Strings:
    data, starts, ends = spans(strings)
    if not web_urls.has_upper(data, starts, ends):
        return strings
    return Strings(*web_urls.lowered(data, starts, ends, byte_bound(starts, ends)), strings.valid)


def _decoded(strings: Strings, *, plus_is_space: bool) -> Strings:
    data, starts, ends = spans(strings)
    if not web_urls.has_escape(data, starts, ends, plus_is_space):
        return strings
    return Strings(*web_urls.decoded(data, starts, ends, plus_is_space, byte_bound(starts, ends)), strings.valid)
