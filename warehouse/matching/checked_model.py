"""A model that is checked once, against its table and the catalog; submit and dry run receive it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from sqlalchemy import Connection

from transforms.analysis.full_pass import is_full_pass, is_resolved
from transforms.errors import InputError
from transforms.expressions.model import Model, ModelInput
from transforms.graphs.encoding import digest
from warehouse.errors import NameTaken
from warehouse.matching.column_checks import check_columns
from warehouse.matching.join_checks import check_joins, with_joined
from warehouse.models.analyses import PlacedAnalysis, Resolution, refuse_missing, resolve_components
from warehouse.models.merged_graph import MergedGraph
from warehouse.models.models import ModelRecord, StoredInput, find_model
from warehouse.models.pinned_analyses import UsedAnalysis, pinned_analyses
from warehouse.planning.policy import policy_named
from warehouse.tables.manifests import get_table
from warehouse.tables.table import Table
from warehouse.warehouse import Warehouse


@dataclass(frozen=True)
class CheckedModel:
    """A model whose table has the columns that it declares.

    Attributes:
        model: the model as the user wrote it.
        inputs: its inputs with full-pass operators resolved; without those that need a ``missing`` analysis.
        table: the table that it was checked against.
        policy: the policy of the submission; None keeps that of the newest version.
        analyses: the analyses that resolve full-pass operators.
        missing: the analyses that must be made before the submission.
    """

    model: Model
    inputs: tuple[StoredInput, ...]
    table: Table
    policy: str | None = None
    analyses: tuple[UsedAnalysis, ...] = ()
    missing: tuple[PlacedAnalysis, ...] = ()

    @cached_property
    def graph(self) -> MergedGraph:
        """The merged graph of the inputs."""
        return MergedGraph(tuple(item.component for item in self.inputs))

    @cached_property
    def digest(self) -> str:
        """The identity of the submitted version."""
        return model_digest(self.model, self.table.name, self.inputs)

    def check_columns(self, table: Table) -> None:
        """Raise what :func:`~warehouse.matching.column_checks.check_columns` raises unless ``table`` can feed the model."""
        check_columns(self.model, self.inputs, self.graph, with_joined(table, self.model.joins))

    def require_analyses(self) -> None:
        """Raise :class:`~warehouse.errors.NotAnalyzed`, naming each operator, if an analysis is missing."""
        refuse_missing(self.model.name, self.missing)


def model_digest(model: Model, table: str, inputs: Iterable[StoredInput | ModelInput]) -> str:
    """The identity of a model version: table, label, and the inputs in order; not its priority or policy."""
    named = [[item.name, item.fingerprint] for item in inputs]
    return digest({"table": table, "label": model.target.identity, "inputs": named})


def check_models(
    warehouse: Warehouse, models: Iterable[Model], *, table: str | None = None, policy: str | None = None
) -> tuple[CheckedModel, ...]:
    """Check every model over ``table`` (default: the table it names), and resolve its full-pass operators.

    Raises what :func:`check_model` and :func:`check_client` raise, :class:`~warehouse.errors.UnknownTable`, and
    :class:`InputError` for a model without a table or an input, and for an unknown policy. A missing analysis is no error.
    """
    if policy is not None:
        policy_named(policy)
    given = tuple(models)

    def check(connection: Connection) -> list[CheckedModel]:
        for model in given:
            check_client(find_model(connection, model.name), model)
        return [_checked(connection, model, _table_of(connection, model, table), policy) for model in given]

    return tuple(_resolve(warehouse, one) for one in warehouse.catalog.query(check))


def _checked(connection: Connection, model: Model, table: Table, policy: str | None) -> CheckedModel:
    check_joins(connection, model.name, table, model.joins)
    return check_model(model, table, policy)


def check_model(model: Model, table: Table, policy: str | None = None) -> CheckedModel:
    """Check that ``table`` has every column of the model, with a type that conforms to the declared one.

    Raises what :func:`~warehouse.matching.column_checks.check_columns` raises.
    """
    inputs = (StoredInput(item.name, item.fingerprint, item.component) for item in model.inputs.values())
    checked = CheckedModel(model, tuple(inputs), table, policy)
    checked.check_columns(table)
    return checked


def check_client(before: ModelRecord | None, model: Model) -> None:
    """Raise :class:`NameTaken` if the model belongs to another client."""
    if before is not None and before.client != model.client:
        raise NameTaken("client must be the one that the model belongs to", where=f"model {model.name}", value=model.client,
                        allowed=before.client, next_step="choose another name")  # fmt: skip


def resolution_of(warehouse: Warehouse, model: Model, table: str) -> Resolution:
    """The model's inputs with the existing results of full passes; those of the newest version's pins come first."""
    components = {item.name: item.component for item in model.inputs.values()}
    if is_resolved(components.values()):
        return Resolution(components, ())
    with warehouse.catalog.read() as connection:
        pinned = pinned_analyses(connection, model.name)
    return resolve_components(warehouse, components, table, pinned)


def _table_of(connection: Connection, model: Model, table: str | None) -> Table:
    name = table or model.table
    if not name:
        raise InputError("a model must name a table", where=f"model {model.name}",
                         next_step="Model(..., table=NAME), or submit it with --table NAME")  # fmt: skip
    if not model.inputs:
        raise InputError("a model must have at least one input", where=f"model {model.name}",
                         next_step='model.input("name", expression)')  # fmt: skip
    return get_table(connection, name)


def _resolve(warehouse: Warehouse, checked: CheckedModel) -> CheckedModel:
    """Replace the full-pass operators whose analyses exist by their results."""
    if not any(is_full_pass(node) for node in checked.graph.nodes):
        return checked
    found = resolution_of(warehouse, checked.model, checked.table.name)
    inputs = tuple(
        StoredInput(name, root.identity, root) for name, root in found.components.items() if is_resolved([root])
    )
    resolved = replace(checked, inputs=inputs, analyses=found.used, missing=found.missing)
    if not found.missing:
        resolved.check_columns(checked.table)
    return resolved
