"""Twins of the web family: the same grammars as regular expressions (RE2) and byte arithmetic."""

from __future__ import annotations

from functools import cache

import numpy as np
import tensorflow as tf

from transforms.arrays import Array
from transforms.operators.addresses import NOT_HOST, SCHEME
from transforms.operators.devices import STEPS
from transforms.operators.farmhash import fingerprint64
from transforms.operators.public_suffixes import Rule, labels_max, rules
from transforms.twins.tensors import DenseTensor

_URL = rf"(?s)^(?:({SCHEME}):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#.*)?$"
_HAS_SCHEME = rf"(?s){SCHEME}:.*"
_HAS_AUTHORITY = rf"(?s)(?:{SCHEME}:)?//.*"
_AUTHORITY = rf"(?s)^(?:.*@)?(\[[0-9A-Fa-f:.]+\]|[^{NOT_HOST}]+)(?::[0-9]*)?$"
_BARE_HOST = rf"[^{NOT_HOST}]+"
_PAIR = r"(?s)^([^=]*)=?(.*)$"
_HEX = np.array([int(chr(byte), 16) if chr(byte) in "0123456789abcdefABCDEF" else -1 for byte in range(256)], np.int32)
_BYTES = [bytes([byte]) for byte in range(256)]
_HASH_BUCKETS = 2**63 - 1


def url_scheme(url: DenseTensor) -> DenseTensor:
    """The scheme, where the text begins with one."""
    return DenseTensor(tf.strings.lower(_group(url.values, _URL, 1)), _matches(url.values, _HAS_SCHEME))


def url_host(url: DenseTensor) -> DenseTensor:
    """The host of a well-formed authority."""
    authority = _group(url.values, _URL, 2)
    valid = _matches(url.values, _HAS_AUTHORITY) & _matches(authority, _AUTHORITY)
    return DenseTensor(tf.strings.lower(_group(authority, _AUTHORITY, 1)), valid)


def url_path_tokens(url: DenseTensor) -> tf.RaggedTensor:
    """The path cut at slashes, its segments decoded."""
    segments = tf.strings.split(_group(url.values, _URL, 3), "/")
    segments = tf.ragged.boolean_mask(segments, segments != "")
    return segments.with_values(_decoded(segments.values, plus_is_space=False))


def url_query_parameter(url: DenseTensor, *, name: str) -> DenseTensor:
    """The first pair whose decoded name is the one wanted."""
    pairs = tf.strings.split(_group(url.values, _URL, 4), "&")
    keys = _unescaped(_group(pairs.values, _PAIR, 1), plus_is_space=True)
    found = tf.ragged.boolean_mask(pairs, pairs.with_values(keys == name.encode()))
    first = found[:, :1]
    values = tf.strings.unsorted_segment_join(first.values, first.value_rowids(), first.nrows())
    return DenseTensor(_decoded(_group(values, _PAIR, 2), plus_is_space=True), found.row_lengths() > 0)


def device_model(device: DenseTensor) -> DenseTensor:
    """The steps of the rule, one after another."""
    models = tf.strings.lower(device.values)
    for pattern, replacement in STEPS:
        models = tf.strings.regex_replace(models, pattern, replacement)
    return DenseTensor(models, models != "")


def url_registered_domain(url: DenseTensor) -> DenseTensor:
    """The longest rule among the last labels of the host, tried by number of labels."""
    hosts = url_host(url)
    bare = _matches(url.values, _BARE_HOST)
    host = tf.where(bare, tf.strings.lower(url.values), hosts.values)
    host = tf.strings.regex_replace(host, r"\.$", "")
    labels = _count(host, ".") + 1
    named = _matches(host, r"[^.\[][^.]*(?:\.[^.]+)*") & ~_matches(host, r"(?s)(?:.*\.)?[0-9]+")
    endings = [_ending(host, count) for count in range(1, labels_max() + 3)]
    longest, excepted = tf.ones_like(labels), tf.zeros_like(labels, tf.bool)
    for count in range(1, labels_max() + 1):
        kinds = tf.where(~excepted & (labels >= count), _rule_kinds(endings[count - 1]), 0)
        longest = tf.where(kinds & int(Rule.SUFFIX) != 0, count, longest)
        longest = tf.where((kinds & int(Rule.WILDCARD) != 0) & (labels > count), count + 1, longest)
        longest = tf.where(kinds & int(Rule.EXCEPTION) != 0, count - 1, longest)
        excepted |= kinds & int(Rule.EXCEPTION) != 0
    domain = tf.gather(tf.stack(endings, axis=1), longest, batch_dims=1)
    return DenseTensor(domain, (bare | hosts.valid) & named & (labels > longest))


def _ending(hosts: tf.Tensor, labels: int) -> tf.Tensor:
    """The last labels of each host; one of fewer labels as it is."""
    return tf.strings.regex_replace(hosts, rf"(?s)^(?:.*\.)?((?:[^.]+\.){{{labels - 1}}}[^.]+)$", r"\1")


def _rule_kinds(names: tf.Tensor) -> tf.Tensor:
    """The rules of each name, 0 for none: looked up by hash, then compared, so that collisions have no effect."""
    hashes, ruled, kinds = _rules_by_hash()
    at = tf.searchsorted(tf.constant(hashes), tf.strings.to_hash_bucket_fast(names, _HASH_BUCKETS))
    at = tf.minimum(at, len(hashes) - 1)
    return tf.where(tf.gather(tf.constant(ruled), at) == names, tf.gather(tf.constant(kinds), at), 0)


@cache
def _rules_by_hash() -> tuple[Array, list[bytes], Array]:
    hashed = sorted((fingerprint64(name.encode()) % _HASH_BUCKETS, name) for name in rules())
    assert len({number for number, _ in hashed}) == len(hashed), "two names of the list have one hash"
    kinds = np.array([rules()[name] for _, name in hashed], np.int32)
    return np.array([number for number, _ in hashed], np.int64), [name.encode() for _, name in hashed], kinds


def _matches(texts: tf.Tensor, pattern: str) -> tf.Tensor:
    return tf.strings.regex_full_match(texts, pattern)


def _group(texts: tf.Tensor, pattern: str, group: int) -> tf.Tensor:
    """The group of a pattern over the whole text; the text itself if the pattern does not match."""
    return tf.strings.regex_replace(texts, pattern, rf"\{group}", replace_global=False)


def _count(texts: tf.Tensor, sign: str) -> tf.Tensor:
    """The number of occurrences of a character in each text, int32."""
    return tf.strings.length(tf.strings.regex_replace(texts, rf"[^{sign}]+", ""))


def _decoded(texts: tf.Tensor, *, plus_is_space: bool) -> tf.Tensor:
    """The texts without escapes; as they are written where those do not spell UTF-8."""
    plain = _unescaped(texts, plus_is_space=plus_is_space)
    return tf.where(tf.strings.unicode_transcode(plain, "UTF-8", "UTF-8") == plain, plain, texts)


def _unescaped(texts: tf.Tensor, *, plus_is_space: bool) -> tf.Tensor:
    """The bytes that texts with percent escapes spell."""
    pieces = tf.strings.bytes_split(texts)
    count, rows = tf.size(pieces.values), pieces.value_rowids()
    codes = tf.cast(tf.reshape(tf.io.decode_raw(pieces.values, tf.uint8), [count]), tf.int32)
    digits = tf.concat([tf.gather(_HEX, codes), [-1, -1]], 0)
    high, low = digits[1 : count + 1], digits[2:]
    same_row = tf.concat([rows, [-1, -1]], 0)[2:] == rows
    escapes = (codes == ord("%")) & (high >= 0) & (low >= 0) & same_row
    before = tf.concat([[False, False], escapes], 0)
    kept = ~(before[:count] | before[1 : count + 1])
    plain = tf.where(codes == ord("+"), ord(" "), codes) if plus_is_space else codes
    values = tf.gather(tf.constant(_BYTES), tf.where(escapes, 16 * high + low, plain))
    return tf.strings.unsorted_segment_join(
        tf.boolean_mask(values, kept), tf.boolean_mask(rows, kept), tf.size(texts, tf.int64)
    )
