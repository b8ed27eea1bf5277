"""Parse and check the document of a read solution."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, cast

from transforms.analysis.target import MOST_CLASSES, MOST_TASKS, TASKS, check_label, target_of
from transforms.documents import Part
from transforms.errors import HeadraceError
from transforms.graphs.graph import RawColumn, component_from_document
from transforms.graphs.subgraphs import subgraphs
from transforms.render import expression_text
from transforms.types import type_from_document
from warehouse.files.column_files import MemoRef
from warehouse.solution.parts import (
    ACTIONS,
    Action,
    MemoWindow,
    ReadPlan,
    SolutionFragment,
    SolutionInput,
    SolutionPartition,
)
from warehouse.tables.table import FRAGMENT_FIELDS, MOST_ROWS, OPTIONAL_FIELDS, fragment_fields

FORMAT = "headrace.read_solution/2"
#: The format of a solution whose label is an expression, or whose task is not the default one.
TARGET_FORMAT = "headrace.read_solution/3"
#: The format of a solution of several labels.
TASKS_FORMAT = "headrace.read_solution/4"
#: The name of the document in errors.
KIND = "read solution"

_FIELDS = ("format", "model", "model_version", "table", "table_version", "label", "inputs", "plans", "partitions")
_TARGET_FIELDS = ("label_component", "task", "classes")
_LARGEST_VERSION = 2**31 - 1


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
    return {
        "model": whole.at("model").name(),
        "model_version": whole.at("model_version").integer(0, _LARGEST_VERSION),
        "table": whole.at("table").name(),
        "table_version": whole.at("table_version").integer(0, _LARGEST_VERSION),
        "label": whole.at("label").text(least=1),
        "inputs": inputs,
        "plans": plans,
        "partitions": tuple(_partition(item, plans) for item in whole.at("partitions").items()),
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
    part.fields(("actions", "loads", "secs_a_row"))
    loads = {name: slot.integer(0, _LARGEST_VERSION) for name, slot in part.at("loads").entries()}
    for name in loads:
        if name not in memoizable:
            raise Part(name, part.at("loads"), name).refused(
                "the fingerprint of an operation of the inputs' components"
            )
    actions = [_action(one) for one in part.at("actions").items(least=len(inputs), most=len(inputs))]
    for position, (action, item) in enumerate(zip(actions, inputs, strict=True)):
        fits = isinstance(item.root, RawColumn) == (action == "raw") and (action != "load" or item.fingerprint in loads)
        if not fits:
            rule = "raw" if isinstance(item.root, RawColumn) else "compute, or load of what the plan loads"
            raise Part(action, part.at("actions"), position).refused(rule)
    return ReadPlan(tuple(actions), loads, part.at("secs_a_row").number())


def _action(part: Part) -> Action:
    return cast(Action, part.one_of(ACTIONS))


def _partition(part: Part, plans: Sequence[ReadPlan]) -> SolutionPartition:
    part.fields(("key", "start", "end", "version", "fragments"))
    start, end = part.at("start").moment(), part.at("end").moment()
    if start > end:
        raise part.at("end").refused("no earlier than the start")
    fragment = partial(_fragment, plans=plans, files=[max(plan.loads.values(), default=-1) + 1 for plan in plans])
    return SolutionPartition(
        key=part.at("key").name(),
        start=start,
        end=end,
        version=part.at("version").integer(0, _LARGEST_VERSION),
        fragments=tuple(fragment(item) for item in part.at("fragments").items()),
    )


def _fragment(part: Part, plans: Sequence[ReadPlan], files: Sequence[int]) -> SolutionFragment:
    """A fragment; ``files``: the least number of files by plan."""
    part.fields((*FRAGMENT_FIELDS, "plan", "files"), (*OPTIONAL_FIELDS, "window"))
    plan = part.at("plan").integer(0, len(plans) - 1)
    refs = tuple(_file(item) for item in part.at("files").items(least=files[plan]))
    fields = fragment_fields(part)
    window = _window(part.at("window"), fields["rows"]) if part.has("window") else None
    return SolutionFragment(**fields, plan=plan, files=refs, window=window)


def _window(part: Part, rows: int) -> MemoWindow:
    part.fields(("first_row", "rows"))
    window = MemoWindow(part.at("first_row").integer(0, MOST_ROWS), part.at("rows").integer(0, MOST_ROWS))
    if window.first_row + rows > window.rows:
        raise part.refused("a part of the files' rows")
    return window


def _file(part: Part) -> MemoRef:
    path, checksum = part.items(least=2, most=2)
    return MemoRef(path.inside_path(), checksum.digest())
