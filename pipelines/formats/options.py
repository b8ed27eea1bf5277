"""Options that the four formats share."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import get_args

from pipelines.log_schemas.schema import PartitionBy
from transforms.errors import InputError


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """Options for the preparation of a known log.

    Attributes:
        negatives_per_positive: negatives drawn per click of a log with clicks only; 1.5 means one or two.
        window_hours: the whole hours before an event's hour that count as recent.
        history_items: the most clicks in a user's history.
        keep_cold: keep clicks on items without a click in the window. Such items are never drawn as negatives, so "no
            recent click" would reveal the label; by default those clicks count for later events but are no rows.
        partition_by: ``hour`` or ``day`` instead of the format's default.
        limit: the first files (globo), users (movielens), rows (criteo) or rows of each file (obd).
        rejects: the folder of the reject files; default: ``<output>.rejects``.
        max_reject_share: above this share of rejected rows nothing is published.
    """

    negatives_per_positive: float = 1.0
    window_hours: int = 24
    history_items: int = 8
    keep_cold: bool = False
    seed: int = 0
    partition_by: PartitionBy | None = None
    limit: int | None = None
    rejects: str = ""
    max_reject_share: float = 0.01

    def __post_init__(self) -> None:
        for name, value, low in (
            ("negatives_per_positive", self.negatives_per_positive, 0),
            ("window_hours", self.window_hours, 1),
            ("history_items", self.history_items, 1),
            ("seed", self.seed, 0),
            ("limit", 1 if self.limit is None else self.limit, 1),
        ):
            if not low <= value < 1 << 31:
                raise InputError(f"{name} must be from {low} to {(1 << 31) - 1}", where=name, value=value,
                                 allowed=f">= {low}", next_step="give a value in this range")  # fmt: skip
        if self.partition_by is not None and self.partition_by not in get_args(PartitionBy):
            raise InputError("partition_by must be hour or day", where="partition_by", value=self.partition_by,
                             allowed=", ".join(get_args(PartitionBy)), next_step="choose one")  # fmt: skip

    def identity(self) -> dict[str, object]:
        """The options that determine the prepared files: all except ``rejects`` and ``max_reject_share``."""
        document = asdict(self)
        del document["rejects"], document["max_reject_share"]
        if self.partition_by is None:  # so that outputs of before there was a choice are still known
            del document["partition_by"]
        return document
