"""What a worker sends of its batch to the towers, and how it makes activations of what comes back, and gradients of its own.

Tables that are sent as rows are combined here, and their gradients are summed by row here, as in the flat exchange and with its bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainer.tables.batches import IdBatch
from trainer.tables.kernels.layout import feature_layout
from trainer.tables.kernels.threads import Team
from trainer.tables.routes.partitioned.gathered_rows import GatheredRows
from trainer.tables.routes.partitioned.requests import RequestMaker, Requests, asked_layout, compact_layout
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.routes.towers.peer_messages import TowerPart, bags_of, joined_batch
from trainer.tables.routes.towers.sent_forms import sent_as_rows
from trainer.tables.routes.towers.tower_layout import AS_BAGS, TowerLayout
from trainer.tables.spec import FeatureSpec, tables_of
from transforms.arrays import Array


@dataclass(frozen=True, slots=True, eq=False)
class SentBatch:
    """A worker's batch on its way to the towers.

    Attributes:
        batch: the batch.
        distinct: its distinct rows of each table.
        rows: of each table, the rows by which it is sent, or :data:`~trainer.tables.routes.towers.tower_layout.AS_BAGS`.
        parts: what each tower gets.
        own: the bags of tables that are sent as rows, with the places of these rows; other bags are empty. None without such tables.
    """

    batch: IdBatch
    distinct: Array
    rows: Array
    parts: tuple[TowerPart, ...]
    own: Requests | None


@dataclass(slots=True)
class SentForms:
    """The tables of batches that went to their towers as rows, and as bags."""

    as_rows: int = 0
    as_bags: int = 0

    def add(self, rows: Array) -> None:
        """Add a batch; ``rows``: those of :class:`SentBatch`."""
        bags = int((rows == AS_BAGS).sum())
        self.as_bags += bags
        self.as_rows += len(rows) - bags


class BatchSender:
    """Divides the batches of one worker among the towers.

    Args:
        chosen: the positions in ``features`` of those of each tower.
        layouts: of these.
        flag: how values are encoded between workers.
        may_send_rows: whether tables may be sent as rows.
    """

    def __init__(
        self, features: Sequence[FeatureSpec], chosen: Sequence[Sequence[int]], layouts: Sequence[TowerLayout], *, seed: int,
        hashed: Sequence[str], team: Team, flag: int, may_send_rows: bool,
    ) -> None:  # fmt: skip
        # The tower quantizes the rows that it gives.
        plain = [replace(one, table=replace(one.table, quantization=None)) for one in features]
        tables = tables_of(plain)
        self._of_features = feature_layout(plain, tables)
        self._layout = asked_layout(self._of_features, tables, seed, hashed)
        self._maker = RequestMaker(
            plain, self._of_features, self._layout, parts=TableParts(tables, 1, None), core=0, team=team
        )
        self._width = sum(one.width for one in plain)
        self._gathered = GatheredRows(self._of_features, self._layout, self._width, team)
        self._chosen, self._layouts, self._flag, self._may_send_rows = chosen, layouts, flag, may_send_rows
        names = [one.name for one in tables]
        self._tables_of = [np.array([names.index(one.name) for one in layout.tables], np.int64) for layout in layouts]
        self._whole = TowerLayout(plain)

    def send(self, batch: IdBatch) -> SentBatch:
        """What the towers get of a batch, whose ids were checked."""
        requests = self._maker.make(batch)
        distinct = requests.layout.vocabulary
        rows = np.where(self._sent_as_rows(batch, distinct), distinct, AS_BAGS)
        ends = np.cumsum(distinct)
        of_tables = np.split(requests.reads.rows.astype(batch.ids.dtype, copy=False), ends[:-1])
        parts = [
            _part_of(batch, chosen, layout, rows[own], [of_tables[t] for t in own])
            for chosen, layout, own in zip(self._chosen, self._layouts, self._tables_of, strict=True)
        ]
        return SentBatch(batch, distinct, rows, tuple(parts), self._own(requests, rows))

    def combine(self, sent: SentBatch, of_towers: Sequence[Array]) -> Array:
        """The activations, float32 [events, width], from the values that the towers have sent back, flat."""
        events, own = sent.batch.rows, sent.own
        values = np.empty(0 if own is None else int((own.layout.vocabulary * own.layout.dims).sum()), np.float32)
        bags = []
        for part, layout, tables, message in zip(sent.parts, self._layouts, self._tables_of, of_towers, strict=True):
            width = layout.bag_width(part.rows)
            at = events * width
            bags.append(message[:at].reshape(events, width))
            for span in self._spans(own, part, layout, tables):
                values[span] = message[at : at + span.stop - span.start]
                at += span.stop - span.start
        found = np.empty((events, self._width), np.float32) if own is None else self._gathered.combine(own, values)
        for part, layout, chosen, matrix in zip(sent.parts, self._layouts, self._chosen, bags, strict=True):
            at = 0
            for k in layout.bag_features(part.rows):
                columns = self._whole.columns_of(chosen[k])
                width = columns.stop - columns.start
                found[:, columns] = matrix[:, at : at + width]
                at += width
        return found

    def gradients(self, sent: SentBatch, gradients: Array) -> list[Array]:
        """What each tower gets of the gradients of the activations, float32 [events, width]: flat, as :meth:`combine` takes values."""
        own, sums = sent.own, np.zeros(0, np.float32)
        if own is not None:
            sums = np.empty(int((own.layout.vocabulary * own.layout.dims).sum()), np.float32)
            self._gathered.sum_gradients(own, np.ascontiguousarray(gradients).reshape(-1), sums)
        found = []
        for part, layout, chosen, tables in zip(sent.parts, self._layouts, self._chosen, self._tables_of, strict=True):
            bags = [gradients[:, self._whole.columns_of(chosen[k])] for k in layout.bag_features(part.rows)]
            pieces = [np.concatenate(bags, axis=1).reshape(-1)] if bags else []
            found.append(np.concatenate([*pieces, *(sums[span] for span in self._spans(own, part, layout, tables))]))
        return found

    def _sent_as_rows(self, batch: IdBatch, distinct: Array) -> Array:
        if not self._may_send_rows:
            return np.zeros(len(distinct), bool)
        use = self._whole.use_of(batch, distinct)
        return sent_as_rows(use, id_bytes=batch.ids.itemsize, has_weights=batch.weights is not None, flag=self._flag)

    def _own(self, requests: Requests, rows: Array) -> Requests | None:
        """The bags that are combined here. Only what :class:`GatheredRows` needs of them is kept up."""
        as_rows = rows != AS_BAGS
        if not as_rows.any():
            return None
        offsets, others = requests.batch.offsets.copy(), ~as_rows[self._of_features.table]
        offsets[others] = offsets[others, :1]
        layout = compact_layout(self._layout, np.maximum(rows, 0))
        return replace(requests, bags=requests.bags._replace(offsets=offsets), layout=layout)

    def _spans(self, own: Requests | None, part: TowerPart, layout: TowerLayout, tables: Array) -> list[slice]:
        """Where the values of a tower's tables that are sent as rows stand among those of all towers, in the order of messages."""
        if own is None:
            return []
        sizes = layout.row_floats(part.rows)
        return [
            slice(int(own.layout.weight_base[t]), int(own.layout.weight_base[t]) + int(size))
            for t, size, rows in zip(tables, sizes, part.rows, strict=True)
            if rows != AS_BAGS
        ]


def _part_of(
    batch: IdBatch, chosen: Sequence[int], layout: TowerLayout, rows: Array, of_tables: Sequence[Array]
) -> TowerPart:
    """What a tower gets of a batch; ``of_tables``: the distinct rows of each of its tables."""
    if (rows == AS_BAGS).all():
        return TowerPart(bags_of(batch, chosen), rows)
    are_bags, events = layout.are_bags(rows), batch.rows
    lengths = layout.folded_lengths(rows, events)
    folded, ids, weights = layout.folded_ids(rows, events, of_tables), [], []
    for k, f in enumerate(chosen):
        own = slice(int(batch.offsets[f, 0]), int(batch.offsets[f, -1]))
        ids.append(batch.ids[own] if are_bags[k] else folded[k])
        if are_bags[k]:
            lengths[k] = np.diff(batch.offsets[f])
        if batch.weights is not None:
            weights.append(batch.weights[own] if are_bags[k] else np.ones(len(folded[k]), np.float32))
    bounds = None if batch.bounds is None else tuple(batch.bounds[f] for f in chosen)
    return TowerPart(joined_batch(ids, lengths, weights or None, bounds), rows)
