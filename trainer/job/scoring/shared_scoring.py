"""Score events on several hosts, of which each has its share of the tables' rows and of the events.

Each host keeps the labels and predictions of its own events, from which all of them compute figures together (:mod:`trainer.evaluation`), so that no machine
needs memory for whole tables or for all events. A host has consecutive batches of the labelled events, which begin where those of one process do: its
predictions have the bits of one process. Nothing is written: if a host is lost, the command scores all events once when it is started again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from trainer.checkpoints.checkpoint import read_epoch
from trainer.checkpoints.stored_commit import Share
from trainer.errors import RunMismatch
from trainer.evaluation.shared_arrays import gather_numbers
from trainer.job.host.sharded_weights import empty_batch
from trainer.job.scoring.event_shares import event_ranges
from trainer.job.scoring.shared_predictions import shared_predictions
from trainer.job.scoring.shared_weights import shared_weights
from trainer.model.calibration import calibrated
from trainer.model.inputs import lay_out
from trainer.model.task_heads import AnyHead
from trainer.options.config import TrainConfig
from trainer.run.labels.label_scan import scan_labels
from trainer.run.preparation.preparation import fragment_refs
from trainer.run.progress.identity import check_inputs, identity_of, in_time_order
from trainer.run.reading.batches import make_batches
from trainer.run.reading.columns import DecodedFragment, take_events
from trainer.run.reading.stream import FragmentRef, ReadFragment, fragment_stream
from trainer.run.weights.saved_run import SavedRun, read_newest_run, saved_run
from trainer.serving.scored_events import ScoredEvents, joined_scores
from trainer.tables.routes.exchange import Exchange
from transforms.arrays import Array
from transforms.errors import DataError, NotFound
from warehouse.solution.parts import SolutionFragment
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
        events: that this host has scored, in time order after those of the hosts before it.
        fragments: of these events, in time order.
    """

    saved: SavedRun
    events: ScoredEvents
    fragments: tuple[SolutionFragment, ...]


def score_together(
    run_dir: str,
    solution: ReadSolution,
    read: ReadFragment,
    read_labels: ReadFragment,
    channels: ScoringChannels,
    *,
    choose: Callable[[SavedRun, ReadSolution], ReadSolution] = lambda saved, solution: solution,
    is_calibrated: bool = True,
    on_skip: Callable[[str], None] = lambda reason: None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> SharedScores:
    """Score the labelled events of ``solution`` with the newest intact checkpoint of a run. All hosts call it at once.

    Args:
        read_labels: reads the labels of all stored events of a fragment.
        choose: the part of the solution to score, by the run.
        is_calibrated: whether logits are calibrated.
        on_skip: called on the first host with the reason why a checkpoint was skipped.
        progress: called with the events that all hosts have scored, and all labelled ones.

    Raises:
        NotFound: on the first host, for a run without a checkpoint.
        RunMismatch: for other inputs than the model's, and on a host that has found other events or another checkpoint than the first one.
        HostLost: if another host is lost.
    """
    rank, hosts = channels.steps.rank, channels.steps.hosts
    saved = agreed_run(run_dir, channels.steps, on_skip)
    solution = choose(saved, solution)
    config = TrainConfig.from_document(saved.identity.config, run_dir=run_dir)
    check_agreed_events(saved, solution, config, channels.steps)
    layout, head = lay_out(saved.identity.typed_inputs, config), saved.head
    weights = shared_weights(layout, config, head, saved.arrays, channels.tables)
    parts = in_time_order(solution)
    refs = [ref for part in parts for ref in fragment_refs(part.key, part.fragments)]
    rows = _labelled_events(channels.steps, refs, read_labels, head)
    ranges = event_ranges(rows, rank, hosts, config.batch_rows)
    positions: list[Array | None] = []

    def own_events() -> Iterator[DecodedFragment]:
        stream = fragment_stream([refs[one.fragment] for one in ranges], read, layout, ahead=config.prefetch_fragments, head=head)  # fmt: skip
        with closing(stream):  # type: ignore[type-var]
            for span, decoded in zip(ranges, stream, strict=True):
                if decoded.rows != rows[span.fragment]:
                    raise DataError("the labels of a fragment must not change while it is scored", where=f"fragment {decoded.key}",
                                    value=f"{decoded.rows} events", allowed=f"{rows[span.fragment]}")  # fmt: skip
                own = take_events(decoded, np.arange(span.first, span.stop))
                is_whole = own.rows == refs[span.fragment].fragment.rows
                positions.append(None if is_whole else _positions(decoded)[span.first : span.stop])
                yield own

    labels: list[Array] = []
    logits: list[Array] = []
    batches = make_batches(own_events(), layout, batch_rows=config.batch_rows)
    idle = empty_batch(layout, config.batch_rows, head)
    for batch, scores in shared_predictions(
        weights, batches, idle, channels.steps, progress=lambda done: progress(done, sum(rows))
    ):
        if not np.isfinite(scores).all():
            raise DataError("a logit must be finite", where=f"host {rank}", value=float(scores[~np.isfinite(scores)][0]),
                            next_step="headrace ckpt verify")  # fmt: skip
        labels.append(batch.labels[: batch.rows].copy())
        logits.append(calibrated(head, saved.progress.calibrations, scores) if is_calibrated else scores)
    events = ScoredEvents(head, *joined_scores(head, labels, logits), tuple(positions))
    return SharedScores(saved, events, tuple(refs[one.fragment].fragment for one in ranges))


def agreed_run(run_dir: str, steps: Exchange, on_skip: Callable[[str], None]) -> SavedRun:
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


def check_agreed_events(saved: SavedRun, solution: ReadSolution, config: TrainConfig, steps: Exchange) -> None:
    """Raise :class:`RunMismatch` for other inputs than the model's, and unless all hosts have the same events."""
    identity = identity_of(solution, config)
    check_inputs(saved.identity, identity)
    _check_equal(
        steps,
        identity.data_digest,
        "events",
        "start all hosts with the same model, --start and --end, once no data is added",
    )


def _labelled_events(steps: Exchange, refs: Sequence[FragmentRef], read: ReadFragment, head: AnyHead) -> list[int]:
    """The labelled events of each fragment; each host reads the labels of some fragments."""
    own = refs[steps.rank :: steps.hosts]
    found = scan_labels(own, own, read, head)
    counts = np.zeros(len(refs), np.int64)
    counts[steps.rank :: steps.hosts] = [np.count_nonzero(found.of(ref.key)) for ref in own]
    return [int(one) for one in gather_numbers(steps, counts).sum(axis=0)]


def _positions(decoded: DecodedFragment) -> Array:
    """The stored event of each row."""
    return np.arange(decoded.rows) if decoded.positions is None else decoded.positions
