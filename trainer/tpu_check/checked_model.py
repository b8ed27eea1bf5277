"""The model that is checked: what its training step depends on, as a document for other processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainer.model.inputs import InputLayout, TypedInput, lay_out
from trainer.model.task_heads import AnyHead, read_head
from trainer.options.config import TrainConfig
from trainer.options.document_field import DocumentField
from trainer.run.weights.one_engine import joined_features
from trainer.tables.sparse_core import SparseCoreSettings
from trainer.tables.spec import FeatureSpec
from transforms.derived_documents import document_of
from transforms.types import type_document, type_from_document


@dataclass(frozen=True, slots=True)
class CheckedModel:
    """A model.

    Attributes:
        inputs: in order.
        config: the options of the run.
        head: of one label, or of several.
        events_per_replica: of a step, on each device.
        pipelined: whether lookups overlap with the dense part.
        settings: of SparseCore.
        is_served: whether servers hold the tables, so that a slice has the dense part alone.
    """

    inputs: tuple[TypedInput, ...]
    config: TrainConfig
    head: AnyHead
    events_per_replica: int
    pipelined: bool = True
    settings: SparseCoreSettings = field(default_factory=SparseCoreSettings)
    is_served: bool = False

    @property
    def layout(self) -> InputLayout:
        """The use of the inputs. Raises :class:`UntrainableInput` or :class:`ConfigError`."""
        return lay_out(self.inputs, self.config)

    @property
    def features(self) -> tuple[FeatureSpec, ...]:
        """The features of one engine: those of the deep part, then those of the linear part."""
        return joined_features(self.layout, self.config, self.head)

    def to_document(self) -> dict[str, Any]:
        """A JSON object, the inverse of :meth:`from_document`."""
        return {
            "inputs": [{"name": one.name, "type": type_document(one.type)} for one in self.inputs],
            "config": self.config.to_document(),
            "head": self.head.to_document(),
            "events_per_replica": self.events_per_replica,
            "pipelined": self.pipelined,
            "settings": document_of(self.settings),
            "is_served": self.is_served,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> CheckedModel:
        """The model of a document that :meth:`to_document` made."""
        fields = dict(document)
        inputs = fields.pop("inputs")
        config = TrainConfig.from_document(fields.pop("config"), run_dir="none")
        settings = SparseCoreSettings(**fields.pop("settings"))
        typed = tuple(TypedInput(one["name"], type_from_document(one["type"])) for one in inputs)
        head = read_head(DocumentField(fields.pop("head"), "head"))
        return cls(inputs=typed, config=config, head=head, settings=settings, **fields)
