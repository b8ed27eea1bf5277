"""A partition plan as a JSON document, which is checked when it is read. Pure; no I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from trainer.errors import ConfigError
from trainer.options.document_field import OPEN, DocumentField
from trainer.planning.fingerprinted import Fingerprinted
from trainer.planning.plan import MOST_CORES, PartitionPlan, TablePlan
from transforms.derived_documents import document_of

PLAN_FORMAT: Final = "headrace.plan/1"
_MOST_SHARDS = 4_000_000


def plan_bytes(plan: PartitionPlan, about: Mapping[str, Any] | None = None) -> bytes:
    """The document of a plan; equal plans give equal bytes. ``about``: further members, which engines do not read."""
    return _PLANS.write(plan, about)


def plan_fingerprint(plan: PartitionPlan) -> str:
    """The identity of a plan: the SHA-256 of its tables, cores and stacks, in hexadecimal."""
    return _PLANS.fingerprint(plan)


def read_plan(data: bytes, where: str) -> PartitionPlan:
    """The plan of a document at ``where``. Raises :class:`ConfigError` for bytes that are not such a document."""
    return _PLANS.read(data, where)[0]


def find_partition(name: str, find_document: Callable[[str], bytes]) -> PartitionPlan | None:
    """The plan whose document has this digest; None for an empty name: rows are spread."""
    return read_plan(find_document(name), f"plan {name[:12]}") if name else None


def read_about(data: bytes, where: str) -> Mapping[str, Any]:
    """The further members of a document; its plan is checked too. Raises :class:`ConfigError`."""
    plan, document = _PLANS.read(data, where)
    own = {"format", "fingerprint", *plan_members(plan)}
    return {name: member.value for name, member in document.members().items() if name not in own}


def plan_at(document: DocumentField) -> PartitionPlan:
    """The plan of the members at ``document``. Raises :class:`ConfigError` and :class:`TornCheckpoint` for others."""
    shards = 0
    tables = []
    for item in document.at("tables").items():
        table = OPEN.read(TablePlan, item)
        shards += sum(len(one.cores) for one in table.slices)
        if shards > _MOST_SHARDS:
            raise ConfigError(
                "a plan must have a number of shards", where=item.place, value=shards, allowed=f"<= {_MOST_SHARDS}"
            )
        tables.append(table)
    stacks = tuple(stack.texts() for stack in document.at("stacks").items())
    return PartitionPlan(document.at("cores").count(most=MOST_CORES), tuple(tables), stacks)


def plan_members(plan: PartitionPlan) -> dict[str, Any]:
    """The members of a plan's document; the inverse of :func:`plan_at`."""
    members: dict[str, Any] = document_of(plan)
    return members


_PLANS: Final = Fingerprinted(PLAN_FORMAT, "a plan", "headrace plan make writes a plan", plan_members, plan_at)
