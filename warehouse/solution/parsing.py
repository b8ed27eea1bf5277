"""Parse and check the document of a read solution."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, cast

from transforms.analysis.target import MOST_CLASSES, MOST_TASKS, TASKS, check_label, target_of
from transforms.derived_documents import read_value
from transforms.documents import Part
from transforms.errors import HeadraceError
from transforms.graphs.graph import RawColumn, component_from_document
from transforms.graphs.subgraphs import subgraphs
from transforms.render import expression_text
from transforms.types import type_from_document
from warehouse.solution.parts import LARGEST_VERSION, ReadPlan, SolutionInput, SolutionPartition

FORMAT = "headrace.read_solution/2"
#: The format of a solution whose label is an expression, or whose task is not the default one.
TARGET_FORMAT = "headrace.read_solution/3"
#: The format of a solution of several labels.
TASKS_FORMAT = "headrace.read_solution/4"
#: The name of the document in errors.
KIND = "read solution"

_FIELDS = ("format", "model", "model_version", "table", "table_version", "label", "inputs", "plans", "partitions")
_TARGET_FIELDS = ("label_component", "task", "classes")


def solution_fields(whole: Part) -> dict[str, Any]:
    """The fields of a solution, with checked references. Raises :class:`~transforms.errors.DataError`."""
    if not whole.has("format") or whole.at("format").value not in (FORMAT, TARGET_FORMAT, TASKS_FORMAT):
        stated = whole.at("format") if whole.has("format") else whole
        known = f"{FORMAT}, {TARGET_FORMAT} or {TASKS_FORMAT}"
        raise stated.refused(known if stated is not whole else f"an object of format {known}")
    plain = whole.at("format").value == FORMAT
    whole.fields(_FIELDS if plain else (*_FIELDS, *_TARGET_FIELDS))
    inputs = tuple(_input(item) for item in whole.at("inputs").items())
    names = [item.name for item in inputs]
    if len(set(names)) != len(names):
        raise whole.at("inputs").refused("a list that names each input once")
    memoizable = {node.identity for item in inputs for node in subgraphs(item.root)}
    plans = tuple(_plan(item, inputs, memoizable) for item in whole.at("plans").items())
    files = [max(plan.loads.values(), default=-1) + 1 for plan in plans]
    return {
        "model": whole.at("model").name(),
        "model_version": whole.at("model_version").integer(0, LARGEST_VERSION),
        "table": whole.at("table").name(),
        "table_version": whole.at("table_version").integer(0, LARGEST_VERSION),
        "label": whole.at("label").text(least=1),
        "inputs": inputs,
        "plans": plans,
        "partitions": tuple(_partition(item, plans, files) for item in whole.at("partitions").items()),
        **({} if plain else _targets(whole) if whole.at("format").value == TASKS_FORMAT else _target(whole)),
    }


def _targets(whole: Part) -> dict[str, Any]:
    """The fields of several labels."""
    document = whole.at("label_component")
    document.fields(("tasks",))
    if whole.at("task").value is not None or whole.at("classes").integer(0, 0):
        raise whole.at("task").refused("null, beside tasks of their own")
    names = []
    for item in document.at("tasks").items(least=2, most=MOST_TASKS):
        item.fields(("name", "label", *_TARGET_FIELDS))
        names.append(item.at("name").name())
        _target(item, is_one_of_several=True)
    if len(set(names)) != len(names):
        raise document.at("tasks").refused("a list that names each label once")
    value = cast("dict[str, object]", document.value)
    if target_of("", value, None, 0).label != whole.at("label").text(least=1):
        raise whole.at("label").refused("the labels in one line")
    return {"label_component": value, "task": None, "classes": 0}


def _target(whole: Part, *, is_one_of_several: bool = False) -> dict[str, Any]:
    """The fields of a label that is not a raw column of 0 and 1."""
    component, task = whole.at("label_component"), whole.at("task")
    label, kind = whole.at("label").text(least=1), None if task.value is None else task.one_of(TASKS)
    classes = whole.at("classes").integer(0, MOST_CLASSES)
    if (kind == "multiclass") != (classes > 1) or (kind != "multiclass" and classes):
        raise whole.at("classes").refused("2 or more for a multi-class task, 0 for others")
    if component.value is None:
        if kind is None and not is_one_of_several:
            raise whole.at("format").refused(f"{FORMAT} for a raw column of the default task")
        return {"task": kind, "classes": classes}
    root = component_from_document(component)
    try:
        check_label(root, "label_component")
    except HeadraceError as error:
        raise component.refused("a boolean or a number per event, of its own columns") from error
    if expression_text(root) != label:
        raise whole.at("label").refused("the component's expression in one line")
    return {"label_component": cast("dict[str, object]", component.value), "task": kind, "classes": classes}


def _input(part: Part) -> SolutionInput:
    part.fields(("name", "fingerprint", "type", "component"))
    component = part.at("component")
    root = component_from_document(component)
    if part.at("fingerprint").digest() != root.identity:
        raise part.at("fingerprint").refused(f"the component's, {root.identity}")
    if type_from_document(part.at("type")) != root.type:
        raise part.at("type").refused(f"the component's, {root.type}")
    return SolutionInput.of(part.at("name").name(), root, cast("dict[str, object]", component.value))


def _plan(part: Part, inputs: Sequence[SolutionInput], memoizable: Collection[str]) -> ReadPlan:
    plan = read_value(ReadPlan, part)
    for name in plan.loads:
        if name not in memoizable:
            raise Part(name, part.at("loads"), name).refused(
                "the fingerprint of an operation of the inputs' components"
            )
    if len(plan.actions) != len(inputs):
        raise part.at("actions").refused(f"a list of {len(inputs)} items")
    for position, (action, item) in enumerate(zip(plan.actions, inputs, strict=True)):
        fits = isinstance(item.root, RawColumn) == (action == "raw") and (
            action != "load" or item.fingerprint in plan.loads
        )
        if not fits:
            rule = "raw" if isinstance(item.root, RawColumn) else "compute, or load of what the plan loads"
            raise Part(action, part.at("actions"), position).refused(rule)
    return plan


def _partition(part: Part, plans: Sequence[ReadPlan], files: Sequence[int]) -> SolutionPartition:
    """A partition; ``files``: the least number of a fragment's files by plan."""
    partition = read_value(SolutionPartition, part)
    for position, fragment in enumerate(partition.fragments):
        if fragment.plan >= len(plans) or len(fragment.files) < files[fragment.plan]:
            raise Part(fragment.plan, Part(None, part.at("fragments"), position), "plan").refused(
                "the number of a plan, whose files the fragment has"
            )
    return partition
