"""What an embedding worker looks up and updates for a client, as a JSON object. Strict when read.

Learning rates come with each update. In their place the document has numbers that tell different optimizers apart, since tables of equal
optimizers are stacked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer.options.combinations import Setup, check_setup
from trainer.options.pruning import PruningOptions
from trainer.planning.plan import PartitionPlan
from trainer.planning.plan_document import plan_bytes, read_plan
from trainer.tables.kernels.layout import TableOrigin
from trainer.tables.optimizers import Optimizer
from trainer.tables.routes.servers.named_servers import NamedServers
from trainer.tables.routes.servers.table_documents import held_tables, read_held_tables
from trainer.tables.spec import COMBINERS, FeatureSpec, Quantization, TableSpec, tables_of
from trainer.tables.stores.hashed.limits import TableLimits
from trainer.tables.wire.settings import WireSettings
from transforms.errors import DataError, InputError

#: The members of the document.
MEMBERS = frozenset({"held", "engine", "features", "plan", "batches", "ids", "values", "pruning", "servers"})
_MOST_FEATURES, _MOST_LENGTH, _MOST_BATCHES = 1 << 16, 1 << 20, 1 << 10


@dataclass(frozen=True, slots=True)
class WorkerTables:
    """The tables of a client of an embedding worker.

    Attributes:
        features: in the order of batches. As the worker has them, optimizers have other learning rates.
        seed: what initial weights are drawn from.
        plan: the placement of the tables, a core for each server; None: rows are spread over them.
        held: batches whose ids are kept for their updates.
        wire: how ids and values are encoded.
        hashed: by name the limits of tables of unbounded vocabularies, on all servers together.
        pruning: only the most important rows have places, by these options; None: all rows have memory.
        servers: those that have the tables now; None: those that the worker was started with.
    """

    features: tuple[FeatureSpec, ...]
    seed: int
    plan: PartitionPlan | None = None
    held: int = 2
    wire: WireSettings = dataclasses.field(default_factory=WireSettings)
    hashed: Mapping[str, TableLimits] = dataclasses.field(default_factory=dict)
    pruning: PruningOptions | None = None
    servers: NamedServers | None = None

    def to_document(self) -> dict[str, Any]:
        """The JSON object, with :data:`MEMBERS`."""
        tables = tables_of(self.features)
        places = {table.name: t for t, table in enumerate(tables)}
        shards = [(table, TableOrigin(table.name)) for table in tables]
        return {
            "held": held_tables(shards, self.seed, self.hashed).to_document(),
            "engine": [
                {
                    "combiner": table.combiner,
                    "optimizer": number,
                    "quantization": None if table.quantization is None else dataclasses.asdict(table.quantization),
                }
                for table, number in zip(tables, _optimizer_numbers(tables), strict=True)
            ],
            "features": [[one.name, places[one.table.name], one.max_sequence_length] for one in self.features],
            "plan": "" if self.plan is None else plan_bytes(self.plan).decode(),
            "batches": self.held,
            "ids": self.wire.ids,
            "values": self.wire.values,
            "pruning": None if self.pruning is None else self.pruning.to_server_document(),
            "servers": None if self.servers is None else self.servers.to_document(),
        }

    @classmethod
    def read(cls, document: dict[str, Any]) -> WorkerTables:
        """The tables of a document with :data:`MEMBERS`. Raises :class:`DataError`."""
        held = read_held_tables(document["held"])
        tables = _read_tables([(one.table, one.origin) for one in held.tables], document["engine"])
        features, plan = _read_features(document["features"], tables), document["plan"]
        if not isinstance(plan, str):
            raise DataError("the plan of a worker's tables must be a string", value=type(plan).__name__)
        _check_count("batches", document["batches"], _MOST_BATCHES)
        try:
            found_plan = read_plan(plan.encode(), "the plan of a worker's tables") if plan else None
            wire = WireSettings(document["ids"], document["values"])
            pruning = None if document["pruning"] is None else PruningOptions.read(document["pruning"])
            servers = None if document["servers"] is None else NamedServers.read(document["servers"])
            if tables_of(features) != tuple(tables):
                raise DataError("the tables of a worker must be those of its features, in their order")
            check_setup(Setup(servers=True, workers=True, hashed=bool(held.limits), pruned=pruning is not None, plan=found_plan is not None,
                              slices=found_plan is not None and not found_plan.has_whole_rows))  # fmt: skip
        except (InputError, TypeError, UnicodeError) as error:
            raise DataError("the tables of a worker must be those of an engine", value=str(error)[:200]) from None
        return cls(tuple(features), held.seed, found_plan, document["batches"], wire, held.limits, pruning, servers)


def _optimizer_numbers(tables: Sequence[TableSpec]) -> list[int]:
    """Equal numbers for equal optimizers, learning rates included."""
    found: dict[Optimizer, int] = {}
    return [found.setdefault(table.optimizer, len(found)) for table in tables]


def _read_tables(held: Sequence[tuple[TableSpec, TableOrigin]], document: object) -> list[TableSpec]:
    if not isinstance(document, list) or len(document) != len(held):
        raise DataError("each table of a worker must have its settings", value=str(document)[:80])
    tables = []
    for (table, origin), found in zip(held, document, strict=True):
        where = f"table {table.name}"
        if not isinstance(found, dict) or found.keys() != {"combiner", "optimizer", "quantization"}:
            raise DataError("the settings of a table must have their members", where=where, value=str(found)[:80])
        if found["combiner"] not in COMBINERS or origin != TableOrigin(table.name):
            raise DataError("a table of a worker must be whole, with a known combiner", where=where, value=str(found)[:80],
                            allowed=", ".join(COMBINERS))  # fmt: skip
        _check_count("optimizer", found["optimizer"], len(held))
        optimizer = dataclasses.replace(table.optimizer, learning_rate=1.0 + found["optimizer"])
        quantization = _read_quantization(found["quantization"], where)
        tables.append(
            dataclasses.replace(table, combiner=found["combiner"], optimizer=optimizer, quantization=quantization)
        )
    return tables


def _read_quantization(document: object, where: str) -> Quantization | None:
    if document is None:
        return None
    names = {one.name for one in dataclasses.fields(Quantization)}
    if not isinstance(document, dict) or document.keys() != names or type(document["num_buckets"]) is not int:
        raise DataError("a quantization must have its members", where=where, value=str(document)[:80])
    if not all(type(document[name]) in (int, float) for name in names):
        raise DataError("the limits of a quantization must be numbers", where=where, value=str(document)[:80])
    try:
        return Quantization(**document)
    except (InputError, OverflowError) as error:
        raise DataError("a quantization must have allowed values", where=where, value=str(error)[:200]) from None


def _read_features(document: object, tables: Sequence[TableSpec]) -> list[FeatureSpec]:
    if not isinstance(document, list) or not 0 < len(document) <= _MOST_FEATURES:
        raise DataError("the features of a worker must be a list", value=str(document)[:80], allowed=f"1 to {_MOST_FEATURES}")  # fmt: skip
    features = []
    for one in document:
        if not isinstance(one, list) or len(one) != 3 or not isinstance(one[0], str):
            raise DataError("a feature of a worker must be a name, a table and a length", value=str(one)[:80])
        name, table, length = one
        _check_count("table", table, len(tables) - 1)
        _check_count("length", length, _MOST_LENGTH)
        features.append(FeatureSpec(name, tables[table], length))
    return features


def _check_count(name: str, value: object, most: int) -> None:
    if type(value) is not int or not 0 <= value <= most:
        raise DataError(f"{name} must be a whole number", value=str(value)[:80], allowed=f"0 to {most}")
