"""What components are ordered by, in SQL: bytes, seconds, requests and readers.

A measure has two forms. One looks up a component of an outer query by indexes. :func:`measured_all` adds for all components at once, in one pass over
each table, which takes less as soon as most components are measured.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, ColumnElement, Select, Subquery, case, distinct, exists, func, select

from warehouse.catalog import schema
from warehouse.scheduling.task_states import MemoState
from warehouse.search.query import Sort

Where = ColumnElement[bool]

_component = schema.components.c.fingerprint


def is_input(fingerprint: ColumnElement[str]) -> Where:
    """Whether any version of any model has the component as an input."""
    asked = schema.model_inputs.alias("asked")
    return exists().where(asked.c.fingerprint == fingerprint)


def size_bytes() -> ColumnElement[Any]:
    """Bytes of a component's ready memos."""
    return _of_ready_memos(schema.memos.c.size_bytes)


def secs() -> ColumnElement[Any]:
    """Computing seconds of a component's ready memos."""
    return _of_ready_memos(schema.memos.c.secs)


def _of_ready_memos(column: Column[Any]) -> ColumnElement[Any]:
    of = schema.memos.c
    ready = (of.fingerprint == _component, of.state == MemoState.READY)
    return select(func.coalesce(func.sum(column), 0)).where(*ready).correlate(schema.components).scalar_subquery()


def hits() -> ColumnElement[Any]:
    """How often the readers of a component were submitted, or read for training."""
    of_inputs = _of_models(*_asks()) + _of_models(*_reads())
    return case((is_input(_component), of_inputs), else_=_hits_inside())


def _hits_inside() -> ColumnElement[Any]:
    return _inside_models(*_asks()) + _inside_models(*_reads())


def _asks() -> tuple[Select[Any], Any, Where]:
    of = schema.submissions
    return select(func.count(of.c.id.distinct())), of, of.c.model == schema.model_inputs.c.model


def _reads() -> tuple[Select[Any], Any, Where]:
    of = schema.reads
    return select(func.count(of.c.id.distinct())), of, of.c.model == schema.model_inputs.c.model


def saved_secs() -> ColumnElement[Any]:
    """Computing seconds of a component's ready memos for every live reader beyond the first."""
    readers = live_readers()
    return case((readers > 1, secs() * (readers - 1)), else_=0.0)


def live_readers() -> ColumnElement[Any]:
    """The number of live models that read a component."""
    return case((is_input(_component), _of_models(*_live())), else_=_inside_models(*_live()))


def _live() -> tuple[Select[Any], Any, Where]:
    of = schema.models
    live = select(func.count(of.c.id.distinct())).where(of.c.live.is_(True))
    return live, of, of.c.id == schema.model_inputs.c.model


def _of_models(count: Select[Any], of: Any, on: Where) -> ColumnElement[Any]:
    inputs = schema.model_inputs
    joined = count.select_from(inputs.join(of, on)).where(inputs.c.fingerprint == _component)
    return joined.correlate(schema.components).scalar_subquery()


def _inside_models(count: Select[Any], of: Any, on: Where) -> ColumnElement[Any]:
    inputs, parts = schema.model_inputs, schema.component_subgraphs
    holding = parts.join(inputs, inputs.c.fingerprint == parts.c.fingerprint).join(of, on)
    joined = count.select_from(holding).where(parts.c.subgraph == _component)
    return joined.correlate(schema.components).scalar_subquery()


def measured_all(sort: Sort) -> Select[Any]:
    """The fingerprint and the measure of an order that is not one of time, named ``value``, of components; further conditions may be added."""
    of = schema.components
    if sort in ("size", "secs"):
        sums = _sums_of_all(schema.memos.c.size_bytes if sort == "size" else schema.memos.c.secs)
        value: ColumnElement[Any] = func.coalesce(sums.c.value, 0)
        return select(_component, value.label("value")).select_from(
            of.outerjoin(sums, _component == sums.c.fingerprint)
        )
    if sort == "hits":
        asked = _hits_of_inputs()
        value = case((asked.c.fingerprint.is_not(None), asked.c.value), else_=_hits_inside())
        return select(_component, value.label("value")).select_from(
            of.outerjoin(asked, _component == asked.c.fingerprint)
        )
    sums, readers = _sums_of_all(schema.memos.c.secs), _readers_of_inputs()
    joined = of.outerjoin(sums, _component == sums.c.fingerprint).outerjoin(
        readers, _component == readers.c.fingerprint
    )
    count = case((readers.c.fingerprint.is_not(None), readers.c.value), else_=_inside_models(*_live()))
    value = case((count > 1, func.coalesce(sums.c.value, 0.0) * (count - 1)), else_=0.0)
    return select(_component, value.label("value")).select_from(joined)


def _sums_of_all(column: Column[Any]) -> Subquery:
    """Sums over the ready memos of every component with any."""
    of = schema.memos.c
    sums = select(of.fingerprint, func.sum(column).label("value")).where(of.state == MemoState.READY)
    return sums.group_by(of.fingerprint).subquery("sums")


def _hits_of_inputs() -> Subquery:
    """The requests of every component that is an input of any version of a model."""
    models, inputs = schema.models, schema.model_inputs
    asks, reads = (
        select(one.c.model, func.count().label("value")).group_by(one.c.model).subquery()
        for one in (schema.submissions, schema.reads)
    )
    of_model = select(models.c.id, (func.coalesce(asks.c.value, 0) + func.coalesce(reads.c.value, 0)).label("value"))
    counted = of_model.select_from(
        models.outerjoin(asks, asks.c.model == models.c.id).outerjoin(reads, reads.c.model == models.c.id)
    ).subquery()
    each = select(inputs.c.fingerprint, inputs.c.model).distinct().subquery()  # a model may have it as several inputs
    total = select(each.c.fingerprint, func.sum(counted.c.value).label("value"))
    return total.join(counted, counted.c.id == each.c.model).group_by(each.c.fingerprint).subquery("asked")


def _readers_of_inputs() -> Subquery:
    """The number of live models of every component that is an input of any version of a model."""
    models, inputs = schema.models, schema.model_inputs
    live = func.count(distinct(case((models.c.live.is_(True), models.c.id))))
    count = select(inputs.c.fingerprint, live.label("value")).join(models, models.c.id == inputs.c.model)
    return count.group_by(inputs.c.fingerprint).subquery("readers")
