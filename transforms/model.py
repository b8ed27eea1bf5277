"""A model as the warehouse sees it: a client, a priority, a label and a set of named inputs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from transforms.canonical import CanonicalForms
from transforms.errors import DuplicateInput, InputError, TypeMismatch
from transforms.expression import Expr
from transforms.graph import Node

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


@dataclass(frozen=True, slots=True)
class ModelInput:
    """One named input; ``component`` is in canonical form and ``fingerprint`` is its identity."""

    name: str
    component: Node
    fingerprint: str


class Model:
    """What a team submits. Inputs keep the order in which they were given.

    ``client`` owns the queue that the model's missing features are computed from, ``priority`` orders that queue
    (higher first), ``label`` is a raw column of 0/1 or booleans, ``table`` the table it reads unless told otherwise.

    >>> model = Model("search_ctr", client="search", priority=10, label="clicked")
    >>> model.input("words", text("query").unigrams().hash_buckets(1000))
    """

    def __init__(self, name: str, *, client: str, label: str, priority: int = 0, table: str | None = None) -> None:
        for what, value in (("model", name), ("client", client)):
            if not isinstance(value, str) or not _NAME.fullmatch(value):
                raise InputError(f"not a name for a {what}", value=value,
                                 allowed="letters, digits, '_', '.', '-', at most 128, a letter or digit first")  # fmt: skip
        if not isinstance(priority, int) or isinstance(priority, bool) or abs(priority) > 1_000_000:
            raise InputError("a priority is a whole number", where=f"model {name}", value=priority,
                             allowed="-1000000 to 1000000; higher goes first")  # fmt: skip
        if not isinstance(label, str) or not label:
            raise InputError("a label is the name of a raw column", where=f"model {name}", value=label)
        self.name = name
        self.client = client
        self.priority = priority
        self.label = label
        self.table = table
        self.inputs: dict[str, ModelInput] = {}
        self.forms = CanonicalForms()  # inputs share prefixes, whose form is found once

    def _repr_html_(self) -> str:
        from transforms.render import model_svg

        drawing = model_svg({name: given.component for name, given in self.inputs.items()})
        return f'<div style="overflow: auto">{drawing}</div>'

    def input(self, name: str, expression: Expr) -> None:
        """Add one input.

        Raises :class:`DuplicateInput` for a name in use and :class:`TypeMismatch` for anything but an expression.
        """
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InputError("not a name for an input", where=f"model {self.name}", value=name,
                             allowed="letters, digits, '_', '.', '-', at most 128, a letter or digit first")  # fmt: skip
        where = f"model {self.name}, input {name}"
        if name in self.inputs:
            raise DuplicateInput("two inputs of one model have the same name", where=where, value=name,
                                 next_step="rename one of them")  # fmt: skip
        if not isinstance(expression, Expr):
            raise TypeMismatch("an input is an expression", where=where, value=type(expression).__name__,
                               next_step='start from a column, as in hr.text("query")')  # fmt: skip
        component = self.forms.of(expression.node)
        self.inputs[name] = ModelInput(name, component, component.identity)
