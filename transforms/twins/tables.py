"""The lookup tables of a bridged graph that becomes part of another graph.

A session fills them once; in a function of TensorFlow 2 they are outside of it, and the module that saves the function
must keep them (:func:`kept_tables`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import tensorflow as tf
from google.protobuf import json_format
from tensorflow.core.framework import tensor_pb2

_kept: ContextVar[list[Any] | None] = ContextVar("_kept", default=None)


@contextmanager
def kept_tables() -> Iterator[list[Any]]:
    """Collect the tables that are created within the context, for a module to hold."""
    tables: list[Any] = []
    token = _kept.set(tables)
    try:
        yield tables
    finally:
        _kept.reset(token)


def tables_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """The handle of every table of a graph's document, by tensor."""
    nodes = document["nodes"]
    handles: dict[str, Any] = {}
    for name in document["initializers"]:
        table, keys, values = nodes[_number(name)]["input"][:3]
        with tf.init_scope():
            filling = tf.lookup.KeyValueTensorInitializer(_constant(nodes, keys), _constant(nodes, values))
            made = tf.lookup.StaticHashTable(filling, tf.zeros([], filling.value_dtype))
        _hold(made)
        handles[table] = made.resource_handle
    return handles


def _hold(table: Any) -> None:
    kept = _kept.get()
    # In eager mode the function is not kept: the table lives as long as the process.
    (_ALIVE if kept is None else kept).append(table)


_ALIVE: list[Any] = []


def _constant(nodes: list[dict[str, Any]], ref: str) -> Any:
    content = nodes[_number(ref)]["attr"]["value"]["tensor"]
    return tf.constant(tf.make_ndarray(json_format.ParseDict(content, tensor_pb2.TensorProto())))


def _number(ref: str) -> int:
    return int(ref.partition(":")[0].removeprefix("n"))
