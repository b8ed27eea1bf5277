"""What an exported SavedModel says of its weights, so that links of a chain can be applied to it. Pure.

It is the member ``served`` of the description beside the graph: the commit and the link whose weights it has, and for each table
the values of a row that no event has reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from trainer.errors import ConfigError, TornCheckpoint
from trainer.options.document_field import DocumentField
from trainer.serving.deltas.chain import Position
from trainer.tables.optimizers import SGD
from trainer.tables.spec import Constant, Initializer, Normal, Quantization, TableSpec, Uniform
from transforms.arrays import Array

_INITIALIZERS: dict[str, type[Initializer]] = {"constant": Constant, "uniform": Uniform, "normal": Normal}


@dataclass(frozen=True, slots=True)
class ServedTable:
    """A table of a SavedModel.

    Attributes:
        kind: "embedding" or "linear".
        spec: its optimizer has no meaning.
    """

    kind: str
    spec: TableSpec

    def to_document(self) -> dict[str, Any]:
        """A JSON object, the inverse of :meth:`read`."""
        spec, initializer = self.spec, self.spec.effective_initializer
        name = next(name for name, one in _INITIALIZERS.items() if isinstance(initializer, one))
        return {
            "kind": self.kind,
            "table": spec.name,
            "rows": spec.vocabulary_size,
            "columns": spec.dim,
            "initializer": {"kind": name, **asdict(initializer)},
            "quantization": None if spec.quantization is None else asdict(spec.quantization),
        }

    @classmethod
    def read(cls, field: DocumentField) -> ServedTable:
        """The table at ``field``. Raises :class:`TornCheckpoint`."""
        members = field.fields(("kind", "table", "rows", "columns", "initializer", "quantization")).members()
        levels = members["quantization"]
        initializer = members["initializer"].members()
        try:
            kind = initializer.pop("kind").text()
            spec = TableSpec(
                members["table"].text(),
                members["rows"].count(),
                members["columns"].count(),
                SGD(1.0),
                initializer=_INITIALIZERS[kind](**_plain(initializer)),
                quantization=None if levels.value is None else Quantization(**_plain(levels.members())),
            )
        except (ConfigError, KeyError, TypeError) as error:
            raise TornCheckpoint(
                "a served table must have a known form", where=field.place, value=str(error)[:200]
            ) from error
        return cls(members["kind"].text(), spec)

    def served(self, weights: Array) -> Array:
        """Rows as a lookup reads them, float32: the weights, quantized if the table simulates that."""
        levels = self.spec.quantization
        if levels is None:
            return weights
        lower, upper = np.float32(levels.lower), np.float32(levels.upper)
        quantum = np.float32((levels.upper - levels.lower) / (levels.num_buckets - 1))
        steps = np.floor((weights.clip(lower, upper) - lower) / quantum + np.float32(0.5))
        found: Array = steps * quantum + lower
        return found


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The weights of a SavedModel.

    Attributes:
        position: the commit and the link that it holds.
        seed: of the initial values.
        tables: of the deep part, then of the linear part.
        dense: the names of dense arrays, in the order of the graph's variables.
    """

    position: Position
    seed: int
    tables: tuple[ServedTable, ...]
    dense: tuple[str, ...]

    def at(self, position: Position) -> ServedModel:
        """The same model with the weights of another position."""
        return replace(self, position=position)

    def to_document(self) -> dict[str, Any]:
        """A JSON object, the inverse of :meth:`read`."""
        at = self.position
        return {
            "model": at.model,
            "epochs": at.epochs,
            "commit": at.commit,
            "link": {"number": at.number, "hash": at.hash} if at.hash else None,
            "seed": self.seed,
            "tables": [one.to_document() for one in self.tables],
            "dense": list(self.dense),
        }

    @classmethod
    def read(cls, field: DocumentField) -> ServedModel:
        """The weights at ``field``. Raises :class:`TornCheckpoint`."""
        members = field.fields(("model", "epochs", "commit", "link", "seed", "tables", "dense")).members()
        link: Mapping[str, DocumentField] = {}
        if members["link"].value is not None:
            link = members["link"].fields(("number", "hash")).members()
        position = Position(
            members["model"].digest(),
            members["epochs"].count(),
            members["commit"].digest(),
            *((link["number"].count(), link["hash"].digest()) if link else ()),
        )
        tables = tuple(map(ServedTable.read, members["tables"].items()))
        return cls(position, members["seed"].count(), tables, members["dense"].texts())


def _plain(members: Mapping[str, DocumentField]) -> dict[str, Any]:
    """Numbers and truth values by name."""
    return {name: one.value if isinstance(one.value, (bool, int)) else one.number() for name, one in members.items()}
