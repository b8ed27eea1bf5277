"""The twin of ``ip_prefix``: an address as eight numbers of 16 bits, masked and written again."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from transforms.twins.tensors import DenseTensor

_OCTET = r"(?:[0-9]|[1-9][0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-5])"
_V4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_V4_TAIL = rf"(?s)^(.*:){_V4}$"
_V4_OF_TAIL = rf"(?s)^.*:({_V4})$"
_V6 = r"(?:[0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]{1,4}"
_GAP = r"(?s)^(.*?)::(.*)$"
#: The text of as many zero groups as the index, for an address that omits them.
_ZEROS = [":".join("0" * count) for count in range(9)]
_HEX = np.array([int(chr(byte), 16) if chr(byte) in "0123456789abcdefABCDEF" else 0 for byte in range(256)], np.int32)


def ip_prefix(address: DenseTensor, *, v4_bits: int, v6_bits: int) -> DenseTensor:
    """IPv4 where the text or the mapped address is one, IPv6 where that is what it spells."""
    texts = address.values
    plain_v4 = _matches(texts, _V4)
    v6, groups = _groups(tf.strings.regex_replace(texts, r"(?s)^\[(.*:.*)\]$", r"\1"))
    mapped = v6 & tf.reduce_all(groups[:, :6] == [0, 0, 0, 0, 0, 0xFFFF], axis=1)
    carried = tf.stack([groups[:, 6] // 256, groups[:, 6] % 256, groups[:, 7] // 256, groups[:, 7] % 256], axis=1)
    octets = tf.where(plain_v4[:, tf.newaxis], _octets(texts, plain_v4), carried)
    network_v4 = tf.strings.reduce_join(
        tf.strings.as_string(tf.bitwise.bitwise_and(octets, _masks(v4_bits, 4, 8))), axis=1, separator="."
    )
    network_v6 = _canonical(tf.bitwise.bitwise_and(groups, _masks(v6_bits, 8, 16)))
    is_v4 = plain_v4 | mapped
    networks = tf.where(is_v4, network_v4 + f"/{v4_bits}", network_v6 + f"/{v6_bits}")
    return DenseTensor(networks, is_v4 | v6)


def _groups(texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """(Which texts are IPv6 addresses; shape [rows, 8], int32: their numbers, 0 for others)."""
    tailed = _matches(texts, _V4_TAIL)
    whole = tf.where(tailed, tf.strings.regex_replace(texts, _V4_TAIL, r"\10:0"), texts)
    left, right = tf.strings.regex_replace(whole, _GAP, r"\1"), tf.strings.regex_replace(whole, _GAP, r"\2")
    missing = 8 - _group_count(left) - _group_count(right)
    filled = tf.gather(tf.constant(_ZEROS), tf.clip_by_value(missing, 0, 8))
    filled = tf.where(left == "", "", left + ":") + filled + tf.where(right == "", "", ":" + right)
    gapped = _matches(whole, _GAP)
    spelled = tf.where(gapped, filled, whole)
    valid = _matches(spelled, _V6) & (~gapped | (missing >= 1))
    numbers = _numbers(tf.where(valid, spelled, _ZEROS[8]))
    quads = _octets(tf.strings.regex_replace(texts, _V4_OF_TAIL, r"\1"), tailed & valid)
    tails = tf.stack([quads[:, 0] * 256 + quads[:, 1], quads[:, 2] * 256 + quads[:, 3]], axis=1)
    return valid, tf.concat([numbers[:, :6], numbers[:, 6:] + tails], axis=1)


def _group_count(texts: tf.Tensor) -> tf.Tensor:
    colons = tf.strings.length(tf.strings.regex_replace(texts, "[^:]+", ""))
    return tf.where(texts == "", 0, colons + 1)


def _numbers(texts: tf.Tensor) -> tf.Tensor:
    """Eight groups of one to four hexadecimal digits as numbers, shape [rows, 8]."""
    groups = tf.reshape(tf.strings.split(texts, ":").values, [-1, 8])
    padded = tf.strings.substr("000" + groups, -4, 4)
    digits = tf.gather(_HEX, tf.cast(tf.io.decode_raw(padded, tf.uint8, fixed_length=4), tf.int32))
    return tf.reduce_sum(digits * [4096, 256, 16, 1], axis=2)


def _octets(texts: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
    """The four numbers of dotted texts, shape [rows, 4]; 0 where not ``valid``."""
    parts = tf.strings.split(tf.where(valid, texts, "0.0.0.0"), ".").values
    return tf.reshape(tf.strings.to_number(parts, tf.int32), [-1, 4])


def _masks(bits: int, count: int, width: int) -> list[int]:
    """The first ``bits`` bits of ``count`` numbers of ``width`` bits."""
    full = ((1 << bits) - 1) << (count * width - bits)
    return [(full >> (width * (count - 1 - i))) & ((1 << width) - 1) for i in range(count)]


def _canonical(groups: tf.Tensor) -> tf.Tensor:
    """Text as RFC 5952 has it: the first longest run of at least two zeros as ``::``."""
    digits = tf.stack([groups // place % 16 for place in (4096, 256, 16, 1)], axis=2)
    letters = tf.strings.reduce_join(tf.gather(tf.constant(list("0123456789abcdef")), digits), axis=2)
    texts = tf.strings.reduce_join(tf.strings.regex_replace(letters, "^0{1,3}", ""), axis=1, separator=":")
    shortened = tf.zeros_like(texts, tf.bool)
    for zeros in range(8, 1, -1):
        run = rf"(?:^|:){_ZEROS[zeros]}(?::|$)"
        found = ~shortened & _matches(texts, rf"(?:.*:)?{_ZEROS[zeros]}(?::.*)?")
        texts = tf.where(found, tf.strings.regex_replace(texts, run, "::", replace_global=False), texts)
        shortened |= found
    return texts


def _matches(texts: tf.Tensor, pattern: str) -> tf.Tensor:
    return tf.strings.regex_full_match(texts, pattern)
