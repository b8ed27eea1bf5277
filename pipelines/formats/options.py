"""Options that the four formats share."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import get_args

from pipelines.log_schemas.schema import PartitionBy
from transforms.errors import InputError


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """How a known log is prepared.

    ``negatives_per_positive``: rows drawn for each click of a log that has clicks only; 1.5 means one or two.
    ``window_hours``: the whole hours before an event's hour that count as recent.
    ``history_items``: how many of a user's latest clicks an event carries.
    ``keep_cold``: keep a click on an item without a click in its window. Such an item cannot be drawn as a negative,
    so "no recent click" would give the label away; by default those clicks count for later events but are no rows.
    ``partition_by``: ``hour`` or ``day`` in place of the format's own; large partitions suit logs of few rows an hour.
    ``limit``: the first so many files (globo), users (movielens), rows (criteo) or rows of each file (obd).
    ``rejects``: the folder of the side files of unreadable rows; default: ``<output>.rejects``.
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
                raise InputError("an option is out of range", where=name, value=value, allowed=f">= {low}")
        if self.partition_by is not None and self.partition_by not in get_args(PartitionBy):
            raise InputError("an option is not one of its values", where="partition_by", value=self.partition_by,
                             allowed=", ".join(get_args(PartitionBy)))  # fmt: skip

    def identity(self) -> dict[str, object]:
        """What decides the prepared files: every option but where rejects go and how many are allowed."""
        document = asdict(self)
        del document["rejects"], document["max_reject_share"]
        if self.partition_by is None:  # so that outputs of before there was a choice are still known
            del document["partition_by"]
        return document
