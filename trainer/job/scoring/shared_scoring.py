"""Score events on several hosts, of which each has its share of the tables' rows and of the events; the first one has the figures.

All hosts look rows up together, batch by batch, and each computes the dense part of its own events while the next rows come. So no machine needs memory for whole tables. Rows,
not sums, come from other hosts, so equal batches have the predictions of one process, bit for bit. Each message to the first host has the labels and logits of the
batch before. Nothing is written: if a host is lost, the command fails, and scores all events once when it is started again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import chain

import numpy as np

from trainer.checkpoints.checkpoint import read_epoch
from trainer.checkpoints.stored_commit import Share
from trainer.errors import RunMismatch
from trainer.job.host.sharded_weights import empty_batch
from trainer.job.scoring.event_shares import EventRange, event_ranges
from trainer.job.scoring.shared_weights import shared_weights
from trainer.model.calibration import calibrated
from trainer.model.inputs import lay_out
from trainer.model.task_heads import AnyHead
from trainer.options.config import TrainConfig
from trainer.run.preparation.preparation import fragment_refs
from trainer.run.progress.identity import check_inputs, identity_of, in_time_order
from trainer.run.reading.batches import Batch, make_batches
from trainer.run.reading.columns import DecodedFragment, take_events
from trainer.run.reading.stream import ReadFragment, fragment_stream
from trainer.run.weights.dense_step import LookedUp
from trainer.run.weights.saved_run import SavedRun, read_newest_run, saved_run
from trainer.serving.scored_events import ScoredEvents, joined_scores
from trainer.tables.routes.exchange import Exchange
from transforms.arrays import Array
from transforms.errors import DataError, NotFound
from warehouse.solution.solution import ReadSolution


@dataclass(frozen=True, slots=True)
class ScoringChannels:
    """The channels of one host to the others: rows of tables, and what the hosts tell each other of a batch."""

    tables: Exchange
    steps: Exchange


@dataclass(frozen=True, slots=True, eq=False)
class SharedScores:
    """What a host knows at the end.

    Attributes:
        saved: the run, with this host's share of its tables.
        own_events: that this host has scored.
        events: of all hosts; None but on the first one.
    """

    saved: SavedRun
    own_events: int
    events: ScoredEvents | None


def score_together(
    run_dir: str,
    solution: ReadSolution,
    read: ReadFragment,
    channels: ScoringChannels,
    *,
    on_skip: Callable[[str], None] = lambda reason: None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> SharedScores:
    """Score the labelled events of ``solution`` with the newest intact checkpoint of a run. All hosts call it at once.

    Args:
        on_skip: called on the first host with the reason why a checkpoint was skipped.
        progress: called there with the events that are scored, and all stored ones.

    Raises:
        NotFound: on the first host, for a run without a checkpoint.
        RunMismatch: for other inputs than the model's, and on a host that has found other events or another checkpoint than the first one.
        HostLost: if another host is lost.
    """
    rank, hosts = channels.steps.rank, channels.steps.hosts
    saved = _agreed_run(run_dir, channels.steps, on_skip)
    config = TrainConfig.from_document(saved.identity.config, run_dir=run_dir)
    identity = identity_of(solution, config)
    check_inputs(saved.identity, identity)
    _check_equal(
        channels.steps,
        identity.data_digest,
        "events",
        "start all hosts with the same model, --start and --end, once no data is added",
    )
    layout, head = lay_out(saved.identity.typed_inputs, config), saved.head
    weights = shared_weights(layout, config, head, saved.arrays, channels.tables)
    parts = in_time_order(solution)
    rows = [one.rows for part in parts for one in part.fragments]
    refs = [ref for part in parts for ref in fragment_refs(part.key, part.fragments)]
    ranges = event_ranges(rows, rank, hosts, config.batch_rows)
    kept: list[Array] = []

    def own_events() -> Iterator[DecodedFragment]:
        stream = fragment_stream([refs[one.fragment] for one in ranges], read, layout, ahead=config.prefetch_fragments, head=head)  # fmt: skip
        with closing(stream):  # type: ignore[type-var]
            for span, decoded in zip(ranges, stream, strict=True):
                taken = _taken(decoded, span)
                kept.append(_positions(decoded)[taken])
                yield take_events(decoded, taken)

    found = _Gathered(head, hosts)
    batches = make_batches(own_events(), layout, batch_rows=config.batch_rows)
    idle = empty_batch(layout, config.batch_rows, head)
    scored: tuple[Array, Array] = idle.labels[:0], weights.predict(idle)
    batch, own = next(batches, None), 0
    with ThreadPoolExecutor(1, "lookups") as lookups:
        before: tuple[Batch, Future[LookedUp]] | None = None  # its rows were looked up, or are meanwhile
        while found.take(channels.steps.all_to_all(_step_messages(hosts, batch, scored))) or before:
            goes_on = found.goes_on
            ahead = (batch or idle, lookups.submit(weights.look_up, batch or idle)) if goes_on else None
            scored = idle.labels[:0], scored[1][:0]
            if before is not None:
                scored = before[0].labels[: before[0].rows], weights.predict_looked_up(before[0], before[1].result())
                own += len(scored[0])
                progress(sum(found.events), sum(rows))
            before, batch = ahead, next(batches, None) if batch else None
    positions = _gathered_positions(channels.steps, ranges, kept, rows)
    if rank:
        return SharedScores(saved, own, None)
    labels, logits = found.joined()
    events = ScoredEvents(head, labels, calibrated(head, saved.progress.calibrations, logits), positions)
    return SharedScores(saved, own, events)


def _agreed_run(run_dir: str, steps: Exchange, on_skip: Callable[[str], None]) -> SavedRun:
    """The newest intact commit that the first host finds, with the share of this host."""
    number = np.zeros(1, np.int64)
    if not steps.rank:
        newest = read_newest_run(run_dir, on_skip=on_skip, weights=False)
        if newest is None:
            raise NotFound("the run directory must hold a checkpoint", where=run_dir, next_step="train first")
        number[0] = newest.number
    (received,) = steps.all_to_all([[number]] * steps.hosts)[0]
    if received.dtype != np.int64 or received.shape != (1,) or received[0] < 0:
        raise DataError(
            "the first host must name a checkpoint", where="host 0", value=f"{received.dtype} {received.shape}"
        )
    saved = saved_run(read_epoch(run_dir, int(received[0]), Share(steps.rank, steps.hosts)))
    _check_equal(steps, saved.digest, "checkpoint", "give all hosts the same --run-dir")
    return saved


def _check_equal(steps: Exchange, digest: str, what: str, next_step: str) -> None:
    """Raise :class:`RunMismatch` on all hosts unless they have the same ``digest``."""
    own = np.frombuffer(bytes.fromhex(digest), np.uint8)
    received = steps.all_to_all([[own]] * steps.hosts)
    for rank, arrays in enumerate(received):
        if len(arrays) != 1 or arrays[0].tobytes() != own.tobytes():
            raise RunMismatch(f"all hosts must have the same {what}", where=f"host {rank}", value=b"".join(one.tobytes() for one in arrays).hex()[:64],
                              allowed=digest, next_step=next_step)  # fmt: skip


def _step_messages(hosts: int, batch: Batch | None, scored: tuple[Array, Array]) -> list[list[Array]]:
    """To each host whether this one has another batch; to the first one also the labels and logits of the batch before."""
    more = np.array([batch is not None], np.uint8)
    labels, logits = (np.ascontiguousarray(one, np.float32).reshape(-1) for one in scored)
    return [[more, labels, logits], *([[more]] * (hosts - 1))]


class _Gathered:
    """Labels and logits that the first host receives, by rank."""

    def __init__(self, head: AnyHead, hosts: int) -> None:
        self._head = head
        self._label_width = int(np.prod(head.label_shape(1)))
        self._labels: list[list[Array]] = [[] for _ in range(hosts)]
        self._logits: list[list[Array]] = [[] for _ in range(hosts)]
        self.events = [0] * hosts
        self.goes_on = True

    def take(self, received: Sequence[Sequence[Array]]) -> bool:
        """Keep what each host has scored; whether any has another batch, as ``goes_on``. Raises :class:`DataError` for arrays that do not fit together."""
        self.goes_on = False
        for rank, arrays in enumerate(received):
            if len(arrays) not in (1, 3) or arrays[0].dtype != np.uint8 or arrays[0].shape != (1,):
                raise _refused(rank, arrays)
            self.goes_on |= bool(arrays[0][0])
            if len(arrays) == 3:
                self._keep(rank, arrays[1], arrays[2])
        return self.goes_on

    def _keep(self, rank: int, labels: Array, logits: Array) -> None:
        count, rest = divmod(len(labels), self._label_width)
        sound = labels.dtype == logits.dtype == np.float32 and labels.ndim == logits.ndim == 1
        if rest or not sound or len(logits) != count * self._head.width:
            raise _refused(rank, (labels, logits))
        if not np.isfinite(logits).all():
            raise DataError(
                "a logit must be finite", where=f"host {rank}", value=float(logits[~np.isfinite(logits)][0])
            )
        self._labels[rank].append(labels.reshape(self._head.label_shape(count)))
        self._logits[rank].append(logits.reshape(count, self._head.width) if self._head.width > 1 else logits)
        self.events[rank] += count

    def joined(self) -> tuple[Array, Array]:
        """Those of all hosts, in time order."""
        return joined_scores(self._head, list(chain(*self._labels)), list(chain(*self._logits)))


def _refused(rank: int, arrays: Sequence[Array]) -> DataError:
    return DataError("a host must send whether it has more events, labels and logits", where=f"host {rank}",
                     value=", ".join(f"{one.dtype} {one.shape}" for one in arrays)[:200] or "no array", allowed="uint8 (1,), float32, float32")  # fmt: skip


def _positions(decoded: DecodedFragment) -> Array:
    """The stored event of each row."""
    return np.arange(decoded.rows) if decoded.positions is None else decoded.positions


def _taken(decoded: DecodedFragment, span: EventRange) -> Array:
    """The rows whose stored events are in the range."""
    positions = _positions(decoded)
    return np.arange(*np.searchsorted(positions, [span.first, span.stop]))


def _gathered_positions(
    steps: Exchange, ranges: Sequence[EventRange], kept: Sequence[Array], rows: Sequence[int]
) -> tuple[Array | None, ...]:
    """On the first host, the stored events of each fragment that were scored, None: all of them; nothing on others.

    A host names the events of a range only if some were not scored. ``rows``: the stored events of each fragment.
    """
    numbers = np.array([[one.fragment, one.first, one.stop, len(own)] for one, own in zip(ranges, kept, strict=True)], np.int64)  # fmt: skip
    named = [own for one, own in zip(ranges, kept, strict=True) if len(own) < one.stop - one.first]
    own = [numbers.reshape(-1), np.concatenate([np.zeros(0, np.int64), *named])]
    received = steps.all_to_all([own, *([()] * (steps.hosts - 1))])
    if steps.rank:
        return ()
    found: list[list[Array]] = [[np.zeros(0, np.int64)] for _ in rows]
    for rank, arrays in enumerate(received):
        for number, events in _named_events(arrays, rank, len(rows)):
            found[number].append(events)
    joined = [np.concatenate(one) for one in found]
    return tuple(None if len(events) == count else events for events, count in zip(joined, rows, strict=True))


def _named_events(arrays: Sequence[Array], rank: int, fragments: int) -> Iterator[tuple[int, Array]]:
    """The fragments of a host's ranges, and the events in them that it has scored. Raises :class:`DataError`."""
    if len(arrays) != 2 or any(one.dtype != np.int64 or one.ndim != 1 for one in arrays) or len(arrays[0]) % 4:
        raise _other_events(rank, f"{len(arrays)} arrays")
    at = 0
    for number, first, stop, count in arrays[0].reshape(-1, 4).tolist():
        if not (0 <= number < fragments and 0 <= first < stop and 0 <= count <= stop - first):
            raise _other_events(rank, (number, first, stop, count))
        if count == stop - first:
            yield number, np.arange(first, stop)
            continue
        events = arrays[1][at : at + count]
        if len(events) < count or (events < first).any() or (events >= stop).any():
            raise _other_events(rank, (number, first, stop, count))
        yield number, events
        at += count
    if at < len(arrays[1]):
        raise _other_events(rank, f"{len(arrays[1]) - at} events more")


def _other_events(rank: int, value: object) -> DataError:
    return DataError("a host must name ranges of fragments, and the events in them that it has scored", where=f"host {rank}", value=value)  # fmt: skip
