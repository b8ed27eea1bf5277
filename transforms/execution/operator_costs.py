"""The cost of operators: the seconds of a plan's steps, divided among their operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from transforms.derived_documents import number
from transforms.execution.fusion import FUSED, STANDS_FOR
from transforms.graphs.encoding import digest
from transforms.graphs.graph import Operation
from transforms.operators import REGISTRY

#: Operators whose program is a parameter: each program has a cost of its own.
_OF_ITS_OWN = "functions"
_DIGEST_CHARACTERS = 16


@dataclass(frozen=True, slots=True)
class OperatorWork:
    """The seconds of an operator over ``rows`` rows, summed over its nodes.

    ``operator`` is named as :func:`cost_name` does.
    """

    operator: str
    version: int
    rows: int
    secs: Annotated[float, number(0.0)]


def cost_name(operator: str, params: Mapping[str, object]) -> str:
    """The name of an operation's cost: the operator's, with a digest of the program for a user's function.

    ``params`` are those of a node or of its document.
    """
    if operator in REGISTRY and REGISTRY[operator].family == _OF_ITS_OWN:
        return f"{operator}:{digest(dict(params))[:_DIGEST_CHARACTERS]}"
    return operator


def declared_secs(operator: str) -> float | None:
    """The declared seconds per row of an operator, by :func:`cost_name`; None for an unknown one."""
    name = operator.partition(":")[0]
    return REGISTRY[name].cost_ns * 1e-9 if name in REGISTRY else None


def is_of_this_release(node: Operation) -> bool:
    """Whether this release has the operator in the version of the node."""
    return node.op in REGISTRY and REGISTRY[node.op].version == node.version


class Share(NamedTuple):
    """An operator, named by :func:`cost_name`, and its ``part`` of the seconds of a step."""

    operator: str
    version: int
    part: float = 1.0


def shares_of(node: Operation) -> tuple[Share, ...]:
    """The operators of one step; a fused one is divided among those it replaces by their declared costs."""
    if node.op not in FUSED:
        return (Share(cost_name(node.op, dict(node.params)), node.version),)
    operators = [REGISTRY[name] for name in STANDS_FOR[node.op]]
    total_ns = sum(operator.cost_ns for operator in operators)
    return tuple(Share(operator.name, operator.version, operator.cost_ns / total_ns) for operator in operators)


def sum_operator_work(works: Iterable[OperatorWork]) -> tuple[OperatorWork, ...]:
    """One sum of rows and seconds per operator and version, by name, added in the given order."""
    totals: dict[tuple[str, int], tuple[int, float]] = {}
    for work in works:
        rows, secs = totals.get((work.operator, work.version), (0, 0.0))
        totals[work.operator, work.version] = rows + work.rows, secs + work.secs
    return tuple(OperatorWork(*key, *total) for key, total in sorted(totals.items()))


def work_of_run(steps: Iterable[tuple[Sequence[Share], float]], rows: int) -> tuple[OperatorWork, ...]:
    """The work of a plan over ``rows`` rows, from the shares and the seconds of each step."""
    return sum_operator_work(
        OperatorWork(share.operator, share.version, rows, secs * share.part)
        for shares, secs in steps
        for share in shares
    )
