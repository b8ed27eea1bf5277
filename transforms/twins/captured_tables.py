"""The lookup tables of a traced function, written into its graph by content.

A file that fills a table is read each time the function is traced. TensorFlow shares such a table by the path of its file,
so that a changed file would give the old contents. A table from outside the function is written with its contents; a
table that TensorFlow shares by a path, with the present contents of the file.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from google.protobuf import json_format
from tensorflow.core.framework import resource_handle_pb2, tensor_pb2, types_pb2
from tensorflow.python.framework import ops

from transforms.graphs.encoding import digest
from transforms.twins.allowed_operations import CONTROL_FLOW, TABLE_READS
from transforms.twins.inlined_graph import PASSING_ON, Graph, Ref, Vertex, constant_vertex
from transforms.twins.refusals import UNWRITTEN_TABLE, NotBridged, next_step

#: TensorFlow's classes of tables that are filled once, as its hook names them.
_STATIC = ("StaticHashTable", "StaticHashTableV1")
#: The place of ``experimental_is_anonymous`` among their arguments.
_ANONYMOUS_AT = 3
#: The initializers of tables: tensors, or a file.
_FILLS = ("LookupTableImportV2", "InitializeTableFromTextFileV2")
#: The prefix of the name of a table that TensorFlow shares by the path of a file.
_SHARED = "hash_table_"
#: Indices of a file's column that need no delimiter: the whole line, and its number.
_WHOLE = (-2, -1)

Contents = tuple[Any, Any]


@contextmanager
def own_tables() -> Iterator[None]:
    """Keep tables that the traced function makes from being shared by the path of their file."""

    def anonymous(next_creator: Any, *args: Any, **keywords: Any) -> Any:
        if len(args) <= _ANONYMOUS_AT:
            keywords["experimental_is_anonymous"] = True
        return next_creator(*args, **keywords)

    with ops.resource_creator_scope(_STATIC[0], anonymous), ops.resource_creator_scope(_STATIC[1], anonymous):
        yield


class Tables:
    """The tables that a traced graph captured: handles by placeholder.

    ``awaited`` are the placeholders of results of an analysis.
    """

    def __init__(self, handles: Mapping[str, Any], awaited: Collection[str] = ()) -> None:
        self._handles = handles
        self._awaited = awaited

    def write(self, graph: Graph, where: str) -> dict[str, str]:
        """Write every table into the graph; returns the node that fills it, by placeholder.

        Raises :class:`NotBridged` for a table that the graph changes, or whose contents cannot be known.
        """
        written = {name: self._written(graph, name, where) for name in self._handles}
        return {name: fill for name, fill in written.items() if fill is not None}

    def _written(self, graph: Graph, name: str, where: str) -> str | None:
        users = graph.users(name)
        typed = [vertex for vertex in users.values() if vertex.op in ("LookupTableFindV2", "LookupTableImportV2")]
        if not typed:
            graph.vertices[name].op = UNWRITTEN_TABLE
            return None
        _refuse_changes(graph, users, where)
        types = {"key_dtype": typed[0].attributes["Tin"], "value_dtype": typed[0].attributes["Tout"]}
        if analyzed := self._filled_by_analysis(graph, users):
            graph.vertices[name] = analyzed
            return None
        keys, values = self._contents_of(graph, name, users, types)
        names = f"{name}/keys", f"{name}/values"
        for each, column in zip(names, (keys, values), strict=True):
            graph.vertices[each] = constant_vertex(column)
        content = json.dumps([graph.vertices[each].attributes for each in names], sort_keys=True)
        shared = base64.b64encode(digest(content).encode()).decode()
        graph.vertices[name] = Vertex("HashTableV2", {**types, "shared_name": {"s": shared}}, [], written=True)
        fill = f"{name}/fill"
        graph.vertices[fill] = Vertex(
            "LookupTableImportV2", {"Tin": types["key_dtype"], "Tout": types["value_dtype"]},
            [(name, 0), (names[0], 0), (names[1], 0)], written=True)  # fmt: skip
        return fill

    def _filled_by_analysis(self, graph: Graph, users: Mapping[str, Vertex]) -> Vertex | None:
        """The placeholder of a table whose file an analysis writes: its readers need the analysis too."""
        for vertex in users.values():
            if vertex.op in _FILLS:
                read = [graph.resolved(ref) for ref in vertex.inputs[1:]]
                if any(at in self._awaited for at, _ in read):
                    return Vertex(vertex.op, vertex.attributes, read, written=True)
        return None

    def _contents_of(self, graph: Graph, name: str, users: Mapping[str, Vertex], types: Mapping[str, Any]) -> Contents:
        kinds = [types_pb2.DataType.Value(types[each]["type"]) for each in ("key_dtype", "value_dtype")]
        fills = [vertex for vertex in users.values() if vertex.op in _FILLS]
        if len(fills) > 1:
            raise NotBridged("a table must be filled once", value=name, next_step="make a table for each filling")
        match fills:
            case [Vertex(op="LookupTableImportV2") as fill]:
                found = _constant(graph, fill.inputs[1]), _constant(graph, fill.inputs[2])
                self._refuse_refilled(name, found, kinds)
            case [fill]:
                found = _from_file(graph, fill, kinds)
            case _:
                found = _present(self._handles[name], kinds, name)
        return _sorted(found, name)

    def _refuse_refilled(self, name: str, found: Contents, kinds: list[int]) -> None:
        """Refuse to fill a table that has other contents: it could be looked up before or after."""
        try:
            held = _exported(self._handles[name], kinds, name)
        except NotBridged:
            return  # valid: the table is empty
        if not _alike(held, found):
            raise NotBridged("a table must be filled once, and the function fills one that was made outside",
                             value=name, next_step="make the table inside the function")  # fmt: skip


def _refuse_changes(graph: Graph, users: Mapping[str, Vertex], where: str) -> None:
    """Refuse any node that changes a table, needed or not: the contents are those of the tracing."""
    reading = {*TABLE_READS, *CONTROL_FLOW, *PASSING_ON, *_FILLS, "LookupTableExportV2"}
    for name, vertex in users.items():
        if vertex.op not in reading:
            raise NotBridged("a table must not change while it is looked up", where=where,
                             value=f"{vertex.op} ({name})", allowed=", ".join(sorted(TABLE_READS)),
                             next_step=next_step(vertex.op))  # fmt: skip
        graph.check_bodies(name, where)


def _sorted(contents: Contents, name: str) -> Contents:
    keys, values = contents
    if keys.ndim != 1 or values.ndim != 1:
        raise NotBridged("a table must have one key and one value an entry", value=f"{name}: {values.shape}",
                         next_step="use tf.gather from a constant in place of a table of vectors")  # fmt: skip
    order = sorted(range(len(keys)), key=lambda i: keys[i])
    return keys[order], values[order]


def _constant(graph: Graph, ref: Ref) -> Any:
    vertex = graph.vertices.get(graph.resolved(ref)[0])
    if vertex is None or vertex.op != "Const":
        raise NotBridged("a table must be filled from constants, or from a file by a constant name", value=ref[0],
                         next_step="fill it from constants, or bridge an analysed function")  # fmt: skip
    return tf.make_ndarray(json_format.ParseDict(vertex.attributes["value"]["tensor"], tensor_pb2.TensorProto()))


def _from_file(graph: Graph, fill: Vertex, kinds: list[int]) -> Contents:
    """The present contents of the file that fills a table."""
    numbers = {name: int(value["i"]) for name, value in fill.attributes.items() if "i" in value}
    size = numbers.get("vocab_size", -1)
    delimiter = base64.b64decode(fill.attributes["delimiter"]["s"]) if "delimiter" in fill.attributes else b"\t"
    reading = _Reading(
        tf.compat.as_text(_constant(graph, fill.inputs[1]).item()), numbers["key_index"], numbers["value_index"],
        None if size == -1 else size, numbers.get("offset", 0), tf.compat.as_text(delimiter))  # fmt: skip
    try:
        return reading.contents(kinds)
    except (tf.errors.OpError, ValueError) as error:
        raise NotBridged("a file that fills a table must be readable when the function is traced",
                         value=reading.path, allowed=str(error)[:300],
                         next_step="check the path and the lines of the file") from error  # fmt: skip


def _present(handle: Any, kinds: list[int], name: str) -> Contents:
    """The contents of a table; for one shared by the path of a file, the present contents of the file."""
    held = _exported(handle, kinds, name)
    readings = [reading for reading in _readings(_shared_name(handle)) if tf.io.gfile.exists(reading.path)]
    if not readings:
        return held
    found = [_readable(reading, kinds) for reading in readings]
    if any(_alike(held, each) for each in found if each is not None):
        return held
    if len(found) == 1 and found[0] is not None and readings[0].needs_no_delimiter:
        return found[0]
    raise NotBridged("a table must hold what its file holds, and this one was filled from other lines or columns",
                     value=readings[0].path, next_step="make the table inside the function")  # fmt: skip


def _exported(handle: Any, kinds: list[int], name: str) -> Contents:
    try:
        keys, values = tf.raw_ops.LookupTableExportV2(table_handle=handle, Tkeys=kinds[0], Tvalues=kinds[1])
    except (tf.errors.OpError, ValueError) as error:
        raise NotBridged("a table that the function looks up must exist and hold entries", value=f"{name}: {error}",
                         next_step="keep the table in a variable outside the function") from error  # fmt: skip
    return keys.numpy(), values.numpy()


def _alike(first: Contents, second: Contents) -> bool:
    entries = (repr([column.tolist() for column in _sorted(each, "")]) for each in (first, second))
    return next(entries) == next(entries)  # as text a NaN is itself, and -0.0 is not 0.0


@dataclass(frozen=True)
class _Reading:
    """One way to read a table's name: which file, and which parts of its lines. ``size`` None is the whole file."""

    path: str
    key: int
    value: int
    size: int | None = None
    offset: int = 0
    delimiter: str = "\t"

    @property
    def needs_no_delimiter(self) -> bool:
        return self.key in _WHOLE and self.value in _WHOLE

    def contents(self, kinds: list[int]) -> Contents:
        """The present contents of the file. Raises TensorFlow's error, or ValueError, if it cannot be read."""
        filling = tf.lookup.TextFileInitializer(
            self.path, tf.as_dtype(kinds[0]), self.key, tf.as_dtype(kinds[1]), self.value,
            vocab_size=self.size, delimiter=self.delimiter, value_index_offset=self.offset)  # fmt: skip
        default = tf.zeros([], filling.value_dtype)
        table = tf.lookup.StaticHashTable(filling, default, experimental_is_anonymous=True)
        keys, values = table.export()
        return keys.numpy(), values.numpy()


def _readable(reading: _Reading, kinds: list[int]) -> Contents | None:
    try:
        return reading.contents(kinds)
    except (tf.errors.OpError, ValueError):
        return None


def _shared_name(handle: Any) -> str:
    """The name of a resource: TensorFlow writes its handle as a length of seven bits a byte, and a message."""
    content = tensor_pb2.TensorProto.FromString(tf.io.serialize_tensor(handle).numpy()).tensor_content
    message = content[next(i for i, byte in enumerate(content) if byte < 0x80) + 1 :]
    return str(resource_handle_pb2.ResourceHandleProto.FromString(message).name)


def _readings(name: str) -> Iterator[_Reading]:
    """The ways to read ``hash_table_<path>[_<size>]_<key>_<value>[_<offset>]``; none for another name."""
    if not name.startswith(_SHARED):
        return
    for count in (2, 3, 4):
        path, *numbers = name.removeprefix(_SHARED).rsplit("_", count)
        if len(numbers) < count or not all(_is_whole(number) for number in numbers):
            return
        match [int(number) for number in numbers]:
            case [key, value]:
                yield _Reading(path, key, value)
            case [first, second, third]:
                yield _Reading(path, second, third, size=first)
                yield _Reading(path, first, second, offset=third)
            case [size, key, value, offset]:
                yield _Reading(path, key, value, size, offset)


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal()
