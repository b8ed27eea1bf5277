"""A model: a client, a priority, a label and named inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from transforms.analysis.expectation import Expect, expectation_of
from transforms.analysis.target import MOST_TASKS, Target, check_label, check_task
from transforms.errors import DuplicateInput, InputError, TypeMismatch
from transforms.expressions.expression import Expr
from transforms.graphs.canonical import CanonicalForms
from transforms.graphs.graph import Node, raw_columns
from transforms.joins.column import definitions_read
from transforms.joins.column_names import is_joined
from transforms.joins.definition import JoinDefinition
from transforms.names import check_name
from transforms.value_range import ValueRange


@dataclass(frozen=True, slots=True)
class ModelInput:
    """One named input of a model.

    Attributes:
        name: of the input.
        component: its graph in canonical form.
        fingerprint: the identity of the component.
        expect: what its author expects of its values.
        joins: the definitions of the joined columns that the component reads, by column name.
    """

    name: str
    component: Node
    fingerprint: str
    expect: Expect | None = None
    joins: Mapping[str, JoinDefinition] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Label:
    """One of several labels of a model, of another task than the default one.

    Attributes:
        label: a raw column or an expression.
        task: "binary" (the default), "multiclass" or "regression".
        classes: the number of classes of a multi-class label.

    >>> model = Model("ads", client="search", label={"click": "clicked", "basket": Label("items", task="regression")})
    >>> model.input("words", text("query").unigrams().hash_buckets(1000))
    """

    label: str | Expr
    task: str | None = None
    classes: int = 0


class Model:
    """A model with named inputs, in the order in which they are added.

    Args:
        client: the client whose queue computes the missing features.
        priority: the order within that queue, higher first.
        table: the table that the model reads by default.
        label: a raw column or an expression; an event whose label is null is not trained. Several labels are a mapping of
            names to columns, expressions or :class:`Label`; an event is trained on those of its labels that are not null.
        task: "binary" (the default: false and true, or 0 and 1), "multiclass" (0 to ``classes`` - 1; the default with
            ``classes``) or "regression" (finite numbers).
        classes: the number of classes of a multi-class label.

    >>> model = Model("search_ctr", client="search", priority=10, label="clicked")
    >>> model.input("words", text("query").unigrams().hash_buckets(1000))
    >>> both = Model("ads", client="search", label={"click": "clicked", "conversion": float32("paid") > 0.0})
    >>> relevant = Model("relevance", client="search", label=float32("relevance") > 2.3)
    """

    def __init__(
        self,
        name: str,
        *,
        client: str,
        label: str | Expr | Mapping[str, str | Expr | Label],
        priority: int = 0,
        table: str | None = None,
        task: str | None = None,
        classes: int = 0,
    ) -> None:
        for what, value in (("model", name), ("client", client)):
            check_name(value, f"a {what}")
        if not isinstance(priority, int) or isinstance(priority, bool) or abs(priority) > 1_000_000:
            raise InputError("a priority must be a whole number", where=f"model {name}", value=priority,
                             allowed="-1000000 to 1000000; higher goes first")  # fmt: skip
        self.name = name
        self.client = client
        self.priority = priority
        self.table = table
        self.inputs: dict[str, ModelInput] = {}
        self.forms = CanonicalForms()  # the form of a prefix that inputs share is found once
        self.target = _target_of(label, task, classes, f"model {name}, label", self.forms)

    @property
    def label(self) -> str:
        """The label's raw column, or its expression in one line; each with its name if there are several."""
        return self.target.label

    @property
    def joins(self) -> dict[str, JoinDefinition]:
        """The definitions of the joined columns that the inputs read, by column name."""
        return {name: one for given in self.inputs.values() for name, one in given.joins.items()}

    def without_inputs(self) -> Model:
        """A copy of the model without inputs."""
        same = Model(self.name, client=self.client, label="-", priority=self.priority, table=self.table)
        same.target = self.target
        return same

    def _repr_html_(self) -> str:
        from transforms.render import model_svg

        drawing = model_svg({name: given.component for name, given in self.inputs.items()})
        return f'<div style="overflow: auto">{drawing}</div>'

    def input(self, name: str, expression: Expr, *, expect: Expect | ValueRange | None = None) -> None:
        """Add one input; ``expect``: limits of its values for ``headrace checks run``, in place of those of all inputs.

        Raises :class:`DuplicateInput` for a name in use and :class:`TypeMismatch` for anything but an expression.
        """
        check_name(name, "an input", where=f"model {self.name}")
        where = f"model {self.name}, input {name}"
        if name in self.inputs:
            raise DuplicateInput("the inputs of a model must have different names", where=where, value=name,
                                 next_step="rename one of them")  # fmt: skip
        if not isinstance(expression, Expr):
            raise TypeMismatch("an input must be an expression", where=where, value=type(expression).__name__,
                               next_step='start from a column, as in hr.text("query")')  # fmt: skip
        component = self.forms.of(expression.node)
        joins = definitions_read(component, expression.node)
        if self.table:
            for one in joins.values():
                one.check_events(self.table)
        self.inputs[name] = ModelInput(name, component, component.identity, expectation_of(expect, where), joins)


def _target_of(label: object, task: object, classes: int, where: str, forms: CanonicalForms) -> Target:
    """The target of one label or of several."""
    if not isinstance(label, Mapping):
        return _target(label, task, classes, where, forms)
    if task is not None or classes:
        raise InputError("a model of several labels must have a task for each of them", where=where, value=task or classes,
                         next_step='label={"price": hr.Label("price", task="regression"), ...}')  # fmt: skip
    if not 2 <= len(label) <= MOST_TASKS:
        raise InputError("a mapping of labels must name several", where=where, value=f"{len(label)} labels",
                         allowed=f"2 to {MOST_TASKS}", next_step='a model of one label has label="clicked"')  # fmt: skip
    tasks = []
    for name, each in label.items():
        check_name(name, "a label", where=where)
        given = each if isinstance(each, Label) else Label(each)
        tasks.append((name, _target(given.label, given.task, given.classes, f"{where} {name}", forms)))
    return Target.of_tasks(tasks)


def _target(label: object, task: object, classes: int, where: str, forms: CanonicalForms) -> Target:
    if task is None and classes:
        task = "multiclass"
    chosen = None if task is None else check_task(task, classes, where)
    if isinstance(label, Expr):
        component = forms.of(label.node)
        check_label(component, where)
        _check_not_joined((column.name for column in raw_columns(component)), where)
        from transforms.render import expression_text

        return Target(expression_text(component), component, chosen, classes)
    if not isinstance(label, str) or not label:
        raise InputError("a label must be a raw column's name or an expression", where=where, value=label,
                         next_step='such as label="clicked", or label=hr.float32("relevance") > 2.3')  # fmt: skip
    _check_not_joined([label], where)
    return Target(label, None, chosen, classes)


def _check_not_joined(columns: Iterable[str], where: str) -> None:
    """Raise for a joined column: it has what is known before an event, and a label what happens after it."""
    for name in columns:
        if is_joined(name):
            raise InputError("a label must be known after its event, got a joined column, which has what is known before it", where=where,
                             value=name, next_step="overlay the label as a column of the table, or join the column as an input")  # fmt: skip
