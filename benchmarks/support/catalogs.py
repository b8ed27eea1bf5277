"""Generate large catalogs in minutes, like years of submissions and workers, by bulk loading.

    python -m benchmarks.support.catalogs --database sqlite --components 100000 --keep FOLDER

makes one, keeps it, and prints the sizes of its tables.

There are two tables. ``events`` has a few fragments; every component of the catalog is memoized over each, some hundreds per
file, as workers write them. ``hours`` has hourly partitions; one model's inputs are memoized over it, in files whose column
sets changed a few times, with a few inputs missing in some months. Some of the components are real: their fingerprints,
documents, columns and memo keys are computed by the product. The others repeat the documents of real ones with made-up
fingerprints.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import count, pairwise
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from benchmarks.support.bulk_load import Loader, Row, loading
from benchmarks.support.scale_models import COLUMNS, LABEL, expression, model
from transforms.comparison.pattern_facts import node_facts
from transforms.graphs.canonical import canonicalize
from transforms.graphs.encoding import digest
from transforms.graphs.graph import Node, component_document, operator_versions, raw_columns, shape_identity
from transforms.graphs.subgraphs import subgraphs
from transforms.render import expression_text
from warehouse.catalog import schema
from warehouse.catalog.catalog import Catalog
from warehouse.catalog.migrations import HEAD
from warehouse.matching.checked_model import model_digest
from warehouse.tables.table import fragment_identity, memo_key

EVENTS, HOURS, YEAR = "events", "hours", "year"
BEGAN_AT = 1_735_689_600  # 2025-01-01
HOUR_SECS, DAY_SECS = 3_600, 86_400
_CLIENTS = tuple(f"client_{i}" for i in range(8))
_ROWS, COLUMN_BYTES, _SECS = 1_000_000, 2_000_000, 0.5
_NEVER = ("never_seen", "this component was never computed over this data")


@dataclass(frozen=True)
class Size:
    """The size of a catalog.

    Attributes:
        components: components that are memoized over each of ``fragments`` fragments of the table ``events``.
        real: about how many of them are real.
        hours: partitions of the table ``hours``, whose model has ``inputs`` inputs.
        in_file: components per file.
        waiting: components of ``events`` that are queued and not computed.
    """

    components: int
    fragments: int = 20
    real: int = 20_000
    hours: int = 8_760
    inputs: int = 500
    in_file: int = 300
    waiting: int = 50

    @property
    def sets(self) -> int:
        """The column sets of ``events``; the components of set s are those from ``s * in_file`` on."""
        return -(-self.components // self.in_file)

    @cached_property
    def real_sets(self) -> tuple[range, ...]:
        """The numbers of the components of the real sets, set by set, evenly spread among the others."""
        step = max(1, self.sets * self.in_file // max(self.real, 1))
        return tuple(self.members(number) for number in range(0, self.sets, step))

    def members(self, number: int) -> range:
        """The components of a set of ``events``."""
        return range(number * self.in_file, min((number + 1) * self.in_file, self.components))

    @property
    def year_inputs(self) -> range:
        """The numbers of the components of the model over ``hours``."""
        return range(self.components, self.components + self.inputs)

    @property
    def waiting_inputs(self) -> range:
        """The numbers of the components that are queued."""
        return range(self.year_inputs.stop, self.year_inputs.stop + self.waiting)

    @property
    def unknown(self) -> int:
        """The first number of a component that is not in the catalog."""
        return self.waiting_inputs.stop


@dataclass(frozen=True)
class _Place:
    row: int
    table: str
    partition: str
    start: int
    end: int
    fragment_id: str
    digests: Mapping[str, str]


@dataclass(frozen=True)
class _Known:
    """A real component as stored in the catalog."""

    fingerprint: str
    shape: str
    expression: str
    document: str
    columns: tuple[str, ...]
    operators: Mapping[str, int]
    subgraphs: tuple[str, ...]
    facts: Mapping[str, frozenset[str]]  # by subgraph


@dataclass(frozen=True)
class _Held:
    """A file: its row, set, place, and the fingerprints of its columns with the columns they read (empty: made up)."""

    row: int
    column_set: int
    place: _Place
    members: Sequence[tuple[str, tuple[str, ...]]]
    model: int


def fill(loader: Loader, size: Size) -> None:
    """Fill an empty catalog to this size."""
    _Filling(loader, size).fill()


class _Filling:
    def __init__(self, loader: Loader, size: Size) -> None:
        self.loader, self.size = loader, size
        real = {number for group in size.real_sets for number in group}
        self.known = {number: _known(canonicalize(expression(number).node)) for number in
                      (*sorted(real), *size.year_inputs, *size.waiting_inputs)}  # fmt: skip
        self.templates = tuple(self.known[number] for number in sorted(real))
        self.places = tuple(_places(size))
        self.events = [place for place in self.places if place.table == EVENTS]
        self.hours = [place for place in self.places if place.table == HOURS]

    def fill(self) -> None:
        self._tables()
        self._components()
        self._models()
        self._sets_and_files()
        self._memos()

    def fingerprint(self, number: int) -> str:
        known = self.known.get(number)
        return known.fingerprint if known else _made_up("component", number)

    def _tables(self) -> None:
        columns = json.dumps([list(column) for column in COLUMNS])
        names = sorted({place.table for place in self.places})
        self.loader.load("tables", ("name", "root", "time_column", "columns", "version", "registered_at"), (
            (name, f"/data/{name}", None, columns, 1, float(BEGAN_AT)) for name in names
        ))  # fmt: skip
        self.loader.load("files", ("table_name", "path", "partition", "size_bytes", "mtime_ns"), (
            (place.table, _path(place), place.partition, 10**9, BEGAN_AT * 10**9) for place in self.places
        ))  # fmt: skip
        self.loader.load(
            "fragments", ("id", "fragment_id", "table_name", "partition", "path", "row_groups", "rows", "size_bytes", "digests"),
            ((place.row, place.fragment_id, place.table, place.partition, _path(place), "[0]", _ROWS, 10**9, json.dumps(place.digests))
             for place in self.places),
        )  # fmt: skip
        self.loader.load(
            "manifests",
            ("id", "table_name", "partition", "version", "table_version", "start_at", "end_at", "current"),
            ((place.row, place.table, place.partition, 1, 1, float(place.start), float(place.end), True)
             for place in self.places),
        )  # fmt: skip
        self.loader.load("manifest_fragments", ("manifest", "position", "fragment"), (
            (place.row, 0, place.row) for place in self.places
        ))  # fmt: skip

    def _components(self) -> None:
        numbers = range(self.size.unknown)
        self.loader.load("components", ("fingerprint", "shape", "expression", "document", "created_at"), (
            self._component(number) for number in numbers
        ))  # fmt: skip
        self.loader.load("component_columns", ("fingerprint", "column_name"), (
            (self.fingerprint(number), name) for number in numbers for name in self._like(number).columns
        ))  # fmt: skip
        self.loader.load("component_operators", ("fingerprint", "operator", "version"), (
            (self.fingerprint(number), *used) for number in numbers for used in self._like(number).operators.items()
        ))  # fmt: skip
        self.loader.load("component_subgraphs", ("fingerprint", "subgraph"), (
            (self.fingerprint(number), one)
            for number in numbers
            for one in (*self._like(number).subgraphs[:-1], self.fingerprint(number))
        ))  # fmt: skip

        self.loader.load("subgraph_facts", ("fact", "subgraph"), self._facts())

    def _facts(self) -> Iterator[Row]:
        yield from {
            (fact, one) for known in self.known.values() for one, facts in known.facts.items() for fact in facts
        }
        for number in range(self.size.unknown):
            if number not in self.known:  # its root is its own, the rest is that of a template
                like = self._like(number)
                yield from ((fact, self.fingerprint(number)) for fact in like.facts[like.fingerprint])

    def _like(self, number: int) -> _Known:
        return self.known.get(number) or self.templates[number * 7919 % len(self.templates)]

    def _component(self, number: int) -> Row:
        like = self._like(number)
        shape = like.shape if number in self.known else _made_up("shape", number)
        return self.fingerprint(number), shape, like.expression, like.document, float(BEGAN_AT + number)

    def _models(self) -> None:
        """One model per set: it introduced the components of that set, and reads some earlier sets."""
        inputs = [self._inputs(number) for number in range(self.size.sets)]
        listed = [(f"model_{number}", _CLIENTS[number % len(_CLIENTS)], EVENTS, read, "all", _made_up("model", number))
                  for number, read in enumerate(inputs)]  # fmt: skip
        year = model(YEAR, self.size.year_inputs, HOURS)
        # Inputs without a memo over hours are computed when they are read.
        listed.append(
            (YEAR, _CLIENTS[0], HOURS, self.size.year_inputs, "none", model_digest(year, HOURS, year.inputs.values()))
        )
        listed.append(("waiting", _CLIENTS[1], EVENTS, self.size.waiting_inputs, "all", _made_up("model", "waiting")))
        self.loader.load("clients", ("name", "served", "leased_tasks"), ((name, 0, 0) for name in _CLIENTS))
        self.loader.load(
            "models",
            ("id", "name", "version", "client", "priority", "label", "table_name", "table_version", "digest", "live",
             "policy", "submitted_at"),
            ((row, name, 1, client, 0, LABEL, table, 1, identity, True, policy, float(BEGAN_AT))
             for row, (name, client, table, _, policy, identity) in enumerate(listed, 1)),
        )  # fmt: skip
        self.loader.load("model_inputs", ("model", "position", "name", "fingerprint"), (
            (row, position, f"input_{number}", self.fingerprint(number))
            for row, (_, _, _, read, _, _) in enumerate(listed, 1)
            for position, number in enumerate(read)
        ))  # fmt: skip
        self.loader.load(
            "submissions", ("model", "submitted_at", "unchanged", "hits", "shared", "queued", "failed"),
            ((row, float(BEGAN_AT), False, 0, 0, len(read), 0) for row, (_, _, _, read, _, _) in enumerate(listed, 1)),
        )  # fmt: skip

    def _inputs(self, number: int) -> list[int]:
        own = list(self.size.members(number))
        earlier = random.Random(number).sample(range(own[0]), min(own[0], max(0, self.size.inputs - len(own))))
        return own + earlier

    def _sets_and_files(self) -> None:
        sets: list[Sequence[int]] = [self.size.members(number) for number in range(self.size.sets)]
        sets += [group for era in self._eras for group in era]
        self.loader.load("column_sets", ("id", "digest"), (
            (row, digest(sorted(map(self.fingerprint, numbers)))) for row, numbers in enumerate(sets, 1)
        ))  # fmt: skip
        self.loader.load("set_members", ("column_set", "fingerprint"), (
            (row, self.fingerprint(number)) for row, numbers in enumerate(sets, 1) for number in numbers
        ))  # fmt: skip
        self.loader.load(
            "memo_files", ("id", "path", "checksum", "rows", "size_bytes", "live_bytes", "written_at"),
            ((file.row, _memo_path(file), _made_up("file", file.row), _ROWS, *[COLUMN_BYTES * len(file.members)] * 2,
              float(file.place.end)) for file in self._files()),
        )  # fmt: skip
        self.loader.load("coverage", ("file", "content", "column_set"), (
            (file.row, file.place.fragment_id, file.column_set) for file in self._files()
        ))  # fmt: skip

    @cached_property
    def _eras(self) -> list[list[list[int]]]:
        """The components of each file of ``hours``, by two months; a twentieth is missing in every second period."""
        numbers = list(self.size.year_inputs)
        rare = set(numbers[::20])
        eras = []
        for era, cuts in enumerate(((3, 5), (1, 2), (2, 5, 4, 5), (1, 3), (3, 10, 7, 10), (1, 2))):
            rng = random.Random(era)
            present = [number for number in numbers if not (era % 2 and number in rare)]
            rng.shuffle(present)
            at = [
                0,
                *(len(present) * part // whole for part, whole in zip(cuts[::2], cuts[1::2], strict=True)),
                len(present),
            ]
            eras.append([sorted(present[a:b]) for a, b in pairwise(at)])
        return eras

    def _files(self) -> Iterator[_Held]:
        rows = count(1)
        for number in range(self.size.sets):
            members = self._members(self.size.members(number))
            for place in self.events:
                yield _Held(next(rows), number + 1, place, members, number + 1)
        first = self.size.sets + 1
        grouped = [[self._members(group) for group in era] for era in self._eras]
        numbered = [[first + sum(map(len, self._eras[:era])) + at for at in range(len(groups))]
                    for era, groups in enumerate(self._eras)]  # fmt: skip
        for hour, place in enumerate(self.hours):
            era = hour * len(self._eras) // len(self.hours)
            for column_set, members in zip(numbered[era], grouped[era], strict=True):
                yield _Held(next(rows), column_set, place, members, self.size.sets + 1)

    def _members(self, numbers: Iterable[int]) -> list[tuple[str, tuple[str, ...]]]:
        return [
            (self.fingerprint(number), self.known[number].columns if number in self.known else ()) for number in numbers
        ]

    def _memos(self) -> None:
        self.loader.load(
            "memos",
            ("memo_key", "fingerprint", "fragment", "state", "file", "rows", "size_bytes", "secs", "created_at",
             "changed_at", "queued_by", "cause_code", "cause"),
            (row for file in self._files() for row in _ready(file)),
        )  # fmt: skip
        waiting = [
            (memo_key(known.fingerprint, place.digests, known.columns), known.fingerprint, place)
            for known in map(self.known.__getitem__, self.size.waiting_inputs)
            for place in self.events
        ]
        queued_by, now = self.size.sets + 2, float(BEGAN_AT)
        # One task per fragment, with the number of its row.
        self.loader.load(
            "tasks",
            ("id", "fragment", "table_name", "partition", "state", "fence", "attempts", "not_before", "created_at",
             "changed_at"),
            ((place.row, place.row, place.table, place.partition, "QUEUED", 0, 0, now, now, now) for place in self.events),
        )  # fmt: skip
        self.loader.load(
            "memos",
            ("memo_key", "fingerprint", "fragment", "state", "task", "created_at", "changed_at", "queued_by", "cause_code",
             "cause"),
            ((key, name, place.row, "PENDING", place.row, now, now, queued_by, *_NEVER) for key, name, place in waiting),
        )  # fmt: skip
        self.loader.load("waits", ("fingerprint", "table_name", "model"), (
            (name, EVENTS, queued_by) for name in sorted({name for _, name, _ in waiting})
        ))  # fmt: skip


def _places(size: Size) -> Iterator[_Place]:
    rows = count(1)
    for table, partitions, secs in (
        (EVENTS, size.fragments, DAY_SECS),
        (HOURS, size.hours, HOUR_SECS),
        ("orders", 30, DAY_SECS),
        ("titles", 12, DAY_SECS),
    ):
        for number in range(partitions):
            start = BEGAN_AT + number * secs
            digests = {name: _made_up(table, number, name) for name, _ in COLUMNS}
            yield _Place(next(rows), table, _partition(start, secs), start, start + secs,
                         fragment_identity(digests, _ROWS), digests)  # fmt: skip


def _partition(start: int, secs: int) -> str:
    at = datetime.fromtimestamp(start, UTC)
    return f"date={at:%Y-%m-%d}" + (f"/hour={at:%H}" if secs == HOUR_SECS else "")


def _path(place: _Place) -> str:
    return f"/data/{place.table}/{place.partition}/part-0.parquet"


def _memo_path(file: _Held) -> str:
    place = file.place
    lease, keys = _made_up("lease", file.row)[:32], _made_up("keys", file.row)[:16]
    return f"memos/{place.table}/{place.partition}/{place.fragment_id[:16]}-{lease}-{keys}.memo"


def _ready(file: _Held) -> Iterator[Row]:
    place = file.place
    rest = (
        place.row,
        "READY",
        file.row,
        _ROWS,
        COLUMN_BYTES,
        _SECS,
        float(BEGAN_AT),
        float(place.end),
        file.model,
        *_NEVER,
    )
    salt = place.fragment_id
    for fingerprint, columns in file.members:
        if columns:
            key = memo_key(fingerprint, place.digests, columns)
        else:
            key = fingerprint[:16] + hashlib.sha256((fingerprint + salt).encode("ascii")).hexdigest()[:48]
        yield (key, fingerprint, *rest)


def _known(root: Node) -> _Known:
    return _Known(
        root.identity, shape_identity(root), expression_text(root), json.dumps(component_document(root)),
        tuple(sorted({column.name for column in raw_columns(root)})), operator_versions(root),
        tuple(node.identity for node in subgraphs(root)), {node.identity: node_facts(node) for node in subgraphs(root)},
    )  # fmt: skip


def _made_up(*what: Any) -> str:
    return hashlib.sha256("/".join(map(str, what)).encode("ascii")).hexdigest()


DATABASES = ("sqlite", "postgresql")


@contextmanager
def made(database: str, size: Size, folder: Path) -> Iterator[tuple[str, Path]]:
    """The catalog's URL and the warehouse's home; the catalog is made unless ``folder`` holds it from an earlier run.

    PostgreSQL's server runs during the ``with`` statement.
    """
    place = folder / f"{database}-{size.components}-{size.hours}"
    ready = place / "ready.json"
    wanted = {**asdict(size), "schema": HEAD}
    if not ready.exists() or json.loads(ready.read_text()) != wanted:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        began = time.perf_counter()
        _make(database, size, place)
        ready.write_text(json.dumps(wanted))
        used = sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
        print(f"made in {time.perf_counter() - began:.0f} s, {used / 1e9:.2f} GB: {place.name}")
    with _serving(database, place) as url:
        print(f"{database}: {size.components:,} components over {size.fragments} fragments; {size.hours:,} hours")
        yield url, place / "home"


def _make(database: str, size: Size, place: Path) -> None:
    with _serving(database, place, for_load=True) as url:
        Catalog.open(url).close()
        with loading(url) as loader:
            fill(loader, size)


@contextmanager
def _serving(database: str, place: Path, *, for_load: bool = False) -> Iterator[str]:
    if database == "sqlite":
        yield f"sqlite:///{place}/catalog.db"
        return
    from benchmarks.support.postgres_server import serving

    with serving(place / "server", loading=for_load) as url:
        yield url


#: The tables that grow with components, memos or partitions.
_LARGE = (schema.memos, schema.tasks, schema.components, schema.component_subgraphs, schema.subgraph_facts,
          schema.component_operators, schema.component_columns, schema.model_inputs, schema.set_members, schema.memo_files, schema.coverage,
          schema.fragments, schema.manifests, schema.manifest_fragments)  # fmt: skip


def describe(url: str) -> None:
    """Print the rows of the large tables, and their bytes with indexes."""
    catalog = Catalog.open(url)
    with catalog.read() as connection:
        dialect = connection.dialect.name
        used = dict(map(tuple, connection.exec_driver_sql(_BYTES[dialect])))
        for table in _LARGE:
            rows = connection.execute(select(func.count()).select_from(table)).scalar_one()
            each = used[table.name] / max(rows, 1)
            print(
                f"  {table.name:<20} {rows:12,} rows {used[table.name] / 1e6:9.1f} MB, {each:6.0f} bytes per row with indexes"
            )
    catalog.close()


_BYTES = {
    "sqlite": "SELECT tbl_name, sum(pgsize) FROM sqlite_master JOIN (SELECT name, pgsize FROM dbstat WHERE aggregate = 1)"
    " USING (name) GROUP BY tbl_name",
    "postgresql": "SELECT relname, pg_total_relation_size(oid) FROM pg_class WHERE relkind = 'r'",
}


def main() -> int:
    """Make a catalog and keep it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", choices=DATABASES, required=True)
    parser.add_argument("--components", type=int, required=True)
    parser.add_argument("--hours", type=int, default=8_760)
    parser.add_argument("--keep", type=Path, required=True)
    options = parser.parse_args()
    with made(options.database, Size(options.components, hours=options.hours), options.keep) as (url, _):
        describe(url)
    return 0


if __name__ == "__main__":
    sys.exit(main())
