"""What is left of a range to hand out: the plan of a stream."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainer.checkpoints.saved_counts import SavedCounts
from trainer.errors import BadLabel, RunMismatch
from trainer.model.task_heads import heads_of
from trainer.run.labels.due_events import DueEvents
from trainer.run.labels.label_scan import scan_labels
from trainer.run.labels.late_data import NOTHING_LATE
from trainer.run.loading.options import StreamOptions
from trainer.run.preparation.job_plan import JobPlan, plan_job
from trainer.run.preparation.preparation import PreparedRun, described, epochs_left, fragment_refs
from trainer.run.progress.data_changes import compare_data
from trainer.run.progress.identity import RunIdentity, check_inputs, in_time_order
from trainer.run.progress.ledger import Ledger
from trainer.run.reading.stream import FragmentRef, ReadFragment
from trainer.run.weights.run_state import RunProgress
from transforms.errors import listed
from warehouse.solution.solution import ReadSolution

#: As of a training job, so that events are shuffled as there.
_UNIT_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class HandedOut:
    """The events that were handed out.

    Attributes:
        identity: the inputs and data of the stream that handed them out.
        counts: how often each of its events was handed out: once, or never.
    """

    identity: RunIdentity
    counts: SavedCounts


def plan_rest(
    solution: ReadSolution, options: StreamOptions, read_labels: ReadFragment, handed: HandedOut | None = None
) -> JobPlan:
    """The plan of the events of a range that have a label, are not deleted, and were not handed out; in order of time.

    Args:
        read_labels: reads the labels of all stored events of a fragment (:func:`warehouse.reading.reader.read_labels`).
        handed: what was handed out of this range, or of an earlier state of it; None: nothing.

    Events are known by the content of their fragments: late rows, labels that came later, deleted events, other places of files and a range with
    more partitions are no difference. Raises :class:`RunMismatch` for other inputs, and for events that were handed out and are gone or have other
    values; :class:`ConfigError` and :class:`UntrainableInput` for options and inputs; :class:`BadLabel` for labels that the model's task does not
    accept, and for a new range without any. Deterministic.
    """
    config = options.config()
    identity, layout = described(solution, config)
    fragments = {part.key: fragment_refs(part.key, part.fragments) for part in in_time_order(solution)}
    refs = [ref for own in fragments.values() for ref in own]
    ledger = Ledger({ref.key: ref.fragment.rows for ref in refs})
    if handed is not None:
        _take_over(handed, identity, ledger)
    head = heads_of(solution.target)
    trainable = scan_labels(refs, [ref for ref in refs if _is_needed(ref, ledger)], read_labels, head)
    if handed is None and not trainable.figures.events:
        raise BadLabel("at least one event of the range must have a label, got none", where=solution.table,
                       value=f"{trainable.figures.unlabelled:,} events without one",
                       next_step="overlay the labels: headrace table overlay, or load an earlier range")  # fmt: skip
    due = DueEvents(ledger, trainable)
    rows = {key: sum(ref.fragment.rows for ref in own) for key, own in fragments.items()}
    progress = RunProgress(segments=(tuple(fragments),), planned_rows=rows)
    prepared = PreparedRun(
        solution=solution,
        config=config,
        identity=identity,
        layout=layout,
        head=head,
        fragments=fragments,
        progress=progress,
        ledger=ledger,
        due=due,
        trainable=trainable,
        late=NOTHING_LATE,
        labels=None,
        reopened={},
        saved=None,
        skipped=(),
        **epochs_left(progress, config, fragments, due, trainable),
    )
    plan = plan_job(prepared, unit_rows=_UNIT_ROWS, shuffle_events=options.shuffle_events)
    # A solution has another digest when a memo becomes ready, which changes no event.
    return replace(plan, solution=identity.data_digest)


def _is_needed(ref: FragmentRef, ledger: Ledger) -> bool:
    """Whether labels of a fragment decide what is left of it."""
    return bool(ref.fragment.deleted_rows or not ledger.of(ref.key).all())


def _take_over(handed: HandedOut, identity: RunIdentity, ledger: Ledger) -> None:
    try:
        check_inputs(handed.identity, identity)
    except RunMismatch as error:
        raise _mismatch(
            "a state must be loaded with the table, label and inputs that it was made with", error.value
        ) from None
    with_events = {fragment.key for fragment, counts in handed.counts.counts() if counts.any()}
    changes = compare_data(
        handed.identity,
        identity,
        trained={key.rpartition("#")[0] for key in with_events},
        trained_fragments=with_events,
    )
    if changes.refused:
        raise _mismatch("events that were handed out must not change", listed(changes.refused))
    ledger.load(handed.counts, changes.now)


def _mismatch(rule: str, value: object) -> RunMismatch:
    return RunMismatch(
        rule, value=value, allowed="late rows, late labels and deleted events", next_step="begin without a state"
    )
