"""What operators cost in a run: the seconds of a plan's steps, told apart by the operators they stand for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from transforms.documents import document_part
from transforms.execution.fusion import FUSED, STANDS_FOR
from transforms.graphs.encoding import digest
from transforms.graphs.graph import Operation
from transforms.operators import REGISTRY

#: Operators whose cost depends on a parameter that holds what they do: each such text counts as an operator of its own.
_OF_ITS_OWN = "functions"
_DIGEST_CHARACTERS = 16


@dataclass(frozen=True, slots=True)
class OperatorWork:
    """Seconds that an operator took over ``rows`` rows: those of each of its nodes, added up.

    ``operator`` is named as :func:`cost_name` does.
    """

    operator: str
    version: int
    rows: int
    secs: float


def cost_name(operator: str, params: Mapping[str, object]) -> str:
    """The name under which an operation's cost is known: the operator's, and for a user's function also which one it is.

    ``params`` are a node's, or those of its document.
    """
    if operator in REGISTRY and REGISTRY[operator].family == _OF_ITS_OWN:
        return f"{operator}:{digest(dict(params))[:_DIGEST_CHARACTERS]}"
    return operator


def declared_secs(operator: str) -> float | None:
    """The declared guess for an operator, in seconds a row, by :func:`cost_name`; None if this release has no such one."""
    name = operator.partition(":")[0]
    return REGISTRY[name].cost_ns * 1e-9 if name in REGISTRY else None


def is_of_this_release(node: Operation) -> bool:
    """Whether this release has the operator in the version that the node asks for."""
    return node.op in REGISTRY and REGISTRY[node.op].version == node.version


class Share(NamedTuple):
    """An operator, named as :func:`cost_name` does, and its ``part`` of the seconds of a plan's step."""

    operator: str
    version: int
    part: float = 1.0


def shares_of(node: Operation) -> tuple[Share, ...]:
    """The operators of one step of a plan. A fused one is shared out among what it stands for, as declared costs are."""
    if node.op not in FUSED:
        return (Share(cost_name(node.op, dict(node.params)), node.version),)
    operators = [REGISTRY[name] for name in STANDS_FOR[node.op]]
    total_ns = sum(operator.cost_ns for operator in operators)
    return tuple(Share(operator.name, operator.version, operator.cost_ns / total_ns) for operator in operators)


def summed(works: Iterable[OperatorWork]) -> tuple[OperatorWork, ...]:
    """One entry an operator and version, by name: rows and seconds added up in the order given."""
    totals: dict[tuple[str, int], tuple[int, float]] = {}
    for work in works:
        rows, secs = totals.get((work.operator, work.version), (0, 0.0))
        totals[work.operator, work.version] = rows + work.rows, secs + work.secs
    return tuple(OperatorWork(*key, *total) for key, total in sorted(totals.items()))


def work_of_run(steps: Iterable[tuple[Sequence[Share], float]], rows: int) -> tuple[OperatorWork, ...]:
    """The work of steps of a plan over ``rows`` rows: the shares and the seconds of each."""
    return summed(
        OperatorWork(share.operator, share.version, rows, secs * share.part)
        for shares, secs in steps
        for share in shares
    )


_FIELDS = ("operator", "version", "rows", "secs")


def work_from_document(documents: object) -> tuple[OperatorWork, ...]:
    """The works that ``dataclasses.asdict`` made documents of. Raises :class:`~transforms.errors.DataError`."""
    return tuple(
        OperatorWork(one.at("operator").text(), one.at("version").integer(), one.at("rows").integer(),
                     one.at("secs").number())
        for one in (item.fields(_FIELDS) for item in document_part(documents, "list of measurements").items())
    )  # fmt: skip
