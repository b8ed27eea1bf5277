"""Choose a run's options: read a sample, run the trial, apply the rules of :mod:`trainer.training.choices`.

Deterministic: equal data and given options give equal choices. A run with a checkpoint keeps its options.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trainer.config import TrainConfig
from trainer.errors import BadLabel, ConfigError, NonFiniteLoss
from trainer.model.dense_scaling import scaling_of
from trainer.model.heads import Head, LabelFigures
from trainer.model.inputs import InputLayout, TypedInput, lay_out
from trainer.model.task_heads import AnyHead, check_task_options, heads_of
from trainer.model.user_functions import with_code_digests
from trainer.reading.batches import make_batches
from trainer.reading.columns import DecodedFragment, decode, take_events
from trainer.reading.stream import ReadFragment
from trainer.runs.identity import in_time_order
from trainer.training import choices as rules
from trainer.training.choices import Candidate, Choices, DataFacts, Trial
from trainer.training.preparation import fragment_refs
from trainer.training.run_state import build_weights
from trainer.training.saved_run import read_newest_run
from warehouse.solution.solution import ReadSolution

Array = np.ndarray[Any, np.dtype[Any]]
#: Called with a sentence about the current candidate.
Tell = Callable[[str], None]

#: The loss of an event that a diverged candidate predicts.
_DIVERGED = 1e6


def choose_config(
    solution: ReadSolution,
    read: ReadFragment,
    given: Mapping[str, Any],
    *,
    run_dir: str,
    tell: Tell | None = None,
    before_trial: Callable[[], None] = lambda: None,
) -> TrainConfig:
    """The options of a run: those ``given``, else those of its checkpoint, else choices by the data.

    ``before_trial``: called before models are built to be compared, such as to import TensorFlow. An option that is None or "auto" counts as not given. Raises :class:`ConfigError` for options out of range, and the
    errors of reading a fragment.
    """
    asked = _asked(given)
    plain = TrainConfig.from_document(asked, run_dir=run_dir)
    if plain.has_own_code:
        before_trial()  # its module imports TensorFlow
        plain = with_code_digests(plain)
    saved = read_newest_run(run_dir, on_skip=_ignore, weights=False)
    if saved is not None:
        return TrainConfig.from_document({**saved.identity.config, **asked}, run_dir=run_dir)
    layout = lay_out([TypedInput(item.name, item.type) for item in solution.inputs], plain)
    head = heads_of(solution.target)
    check_task_options(plain, head)
    try:
        sample = _sample(solution, read, layout, head)
    except BadLabel:
        return plain  # training refuses these labels before its first step, with their number
    facts = _facts(solution, sample, layout, head)
    if not facts.sampled:
        return plain
    head = head.fitted(_figures(head, sample))
    by_rule = rules.chosen_by_rule(facts, asked)
    by_trial = _by_trial(facts, sample, asked, by_rule, plain, layout, head, tell or _ignore, before_trial)
    reasons = {**by_rule.reasons, **by_trial.reasons}
    return dataclasses.replace(plain, **by_rule.options, **by_trial.options, chosen=dict(sorted(reasons.items())))


def options_before_choices(given: Mapping[str, Any], *, run_dir: str) -> TrainConfig:
    """The options of a run that are known without its data: those ``given``, those of its checkpoint, and defaults."""
    saved = read_newest_run(run_dir, on_skip=_ignore, weights=False)
    kept = {} if saved is None else dict(saved.identity.config)
    return TrainConfig.from_document({**kept, **_asked(given)}, run_dir=run_dir)


def _asked(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are given."""
    return {name: value for name, value in given.items() if value is not None and value != "auto"}


def _ignore(message: str) -> None:
    """The default for messages."""


def _sample(solution: ReadSolution, read: ReadFragment, layout: InputLayout, head: AnyHead) -> list[DecodedFragment]:
    """The newest events of the range, in time order, up to the sample's size."""
    refs = [ref for part in in_time_order(solution) for ref in fragment_refs(part.key, part.fragments)]
    newest: list[DecodedFragment] = []
    left = rules.SAMPLE_EVENTS
    for ref in reversed(refs):
        if left <= 0:
            break
        decoded = decode(read(ref.fragment), layout, ref.key, head=head)
        if decoded.rows > left:
            decoded = take_events(decoded, np.arange(decoded.rows - left, decoded.rows))
        newest.append(decoded)
        left -= decoded.rows
    return newest[::-1]


def _facts(solution: ReadSolution, sample: Sequence[DecodedFragment], layout: InputLayout, head: AnyHead) -> DataFacts:
    labels = np.concatenate([np.zeros(head.label_shape(0), np.float32), *(part.labels for part in sample)])
    dense = np.concatenate([np.zeros((0, layout.dense_width), np.float32), *(part.dense for part in sample)])
    positives, rates = None, {}
    if isinstance(head, Head):
        positives = int((labels == 1).sum()) if head.task == "binary" else None
    else:
        columns = {name: labels[:, t] for t, (name, one) in enumerate(head.each) if one.task == "binary"}
        rates = {name: (int((own == 1).sum()), int((~np.isnan(own)).sum())) for name, own in columns.items()}
    scaling = scaling_of(layout, dense) if len(labels) else {}
    return DataFacts(solution.rows, len(labels), positives, scaling, bool(layout.embedded), rates)


def _figures(head: AnyHead, sample: Sequence[DecodedFragment]) -> LabelFigures:
    labels = np.concatenate([part.labels for part in sample]).astype(np.float64)
    if isinstance(head, Head):
        return _figures_of(labels)
    each = (labels[~np.isnan(labels[:, t]), t] for t in range(len(head.each)))
    return LabelFigures(events=len(labels), tasks=tuple(map(_figures_of, each)))


def _figures_of(labels: Array) -> LabelFigures:
    if not len(labels):
        return LabelFigures()
    return LabelFigures(events=len(labels), mean=float(labels.mean()), deviation=float(labels.std()))


def _by_trial(
    facts: DataFacts,
    sample: Sequence[DecodedFragment],
    given: Mapping[str, Any],
    by_rule: Choices,
    plain: TrainConfig,
    layout: InputLayout,
    head: AnyHead,
    tell: Tell,
    before_trial: Callable[[], None],
) -> Choices:
    candidates = rules.candidates_of(facts, given)
    if not candidates:
        raise ConfigError("deep and linear must not both be false", where="deep, linear", value=False,
                          allowed="one of them true", next_step="leave one of them out")  # fmt: skip
    if len(candidates) == 1 and "passes" in given:
        return rules.untried(candidates[0], given)
    older, newer = split_events(sample, round(facts.sampled * (1 - rules.VALIDATED_SHARE)))
    if not newer or not older:
        return rules.untried(candidates[0], given)
    passes = given.get("passes") or rules.most_passes(facts)
    labels = np.concatenate([part.labels for part in newer])
    weights = plain.task_weights
    base_losses = event_losses(
        head, labels, constant_logits(head, [part.labels for part in older], len(labels)), weights
    )
    trials = []
    before_trial()
    for candidate in candidates:
        tell(f"trying {candidate.name}")
        config = dataclasses.replace(plain, **by_rule.options, **candidate.options, passes=passes)
        trials.append(_try(candidate, config, layout, head, older, newer))
    return rules.decide(facts, trials, base_losses, given)


def _try(
    candidate: Candidate,
    config: TrainConfig,
    layout: InputLayout,
    head: AnyHead,
    older: Sequence[DecodedFragment],
    newer: Sequence[DecodedFragment],
) -> Trial:
    """Train until a pass does not lower the validated loss; return the losses of the best pass."""
    layout = lay_out((*layout.embedded, *layout.dense), config)
    weights = build_weights(layout, config, head)
    labels = np.concatenate([part.labels for part in newer])
    best: Trial | None = None
    for number in range(1, config.passes + 1):
        losses = np.full(len(labels), _DIVERGED)
        with contextlib.suppress(NonFiniteLoss):  # a candidate that diverges loses the trial
            for batch in make_batches(older, layout, batch_rows=config.batch_rows):
                weights.train(batch)
            logits = [weights.predict(batch) for batch in make_batches(newer, layout, batch_rows=config.batch_rows)]
            losses = event_losses(head, labels, np.concatenate(logits), config.task_weights)
            losses = np.where(np.isfinite(losses), losses, _DIVERGED)
        if best is not None and losses.mean() >= best.losses.mean():
            break
        best = Trial(candidate, number, losses)
    assert best is not None
    return best


def split_events(sample: Sequence[DecodedFragment], first: int) -> tuple[list[DecodedFragment], list[DecodedFragment]]:
    """The first ``first`` events of some fragments, and the others."""
    older: list[DecodedFragment] = []
    newer: list[DecodedFragment] = []
    for part in sample:
        count = min(max(first, 0), part.rows)
        if count:
            older.append(take_events(part, np.arange(count)))
        if count < part.rows:
            newer.append(take_events(part, np.arange(count, part.rows)))
        first -= part.rows
    return older, newer


def constant_logits(head: AnyHead, labels: Sequence[Array], rows: int) -> Array:
    """Logits that predict the mean of ``labels`` for each of ``rows`` events, of each task if there are several."""
    known = np.concatenate(labels).astype(np.float64)
    if isinstance(head, Head):
        return _constant_of(head, known, rows)
    columns = [(one, known[:, t]) for t, (_, one) in enumerate(head.each)]
    parts = [_constant_of(one, values[~np.isnan(values)], rows).reshape(rows, -1) for one, values in columns]
    return np.concatenate(parts, axis=1)


def _constant_of(head: Head, known: Array, rows: int) -> Array:
    if head.task == "multiclass":
        counts = np.bincount(known.astype(np.int64), minlength=head.classes) + 0.5
        return np.tile(np.log(counts / counts.sum()), (rows, 1))
    if head.task == "binary":
        rate = (known.sum() + 0.5) / (len(known) + 1)
        return np.full(rows, np.log(rate / (1 - rate)))
    return np.full(rows, (known.mean() - head.center) / head.scale if len(known) else 0.0)


def event_losses(head: AnyHead, labels: Array, logits: Array, weights: Mapping[str, float] | None = None) -> Array:
    """The loss of every event, float64: nats, or for a regression squared deviations.

    Of several labels it is the sum of the losses of those that the event has, times the ``weights`` by name.
    """
    logits = np.asarray(logits, np.float64)
    if isinstance(head, Head):
        return _losses_of(head, labels, logits)
    total = np.zeros(len(labels))
    for t, (name, one) in enumerate(head.each):
        known = ~np.isnan(labels[:, t])
        own = head.logits_of(name, logits)
        total[known] += (weights or {}).get(name, 1.0) * _losses_of(one, labels[known, t], own[known])
    return total


def _losses_of(head: Head, labels: Array, logits: Array) -> Array:
    if head.task == "multiclass":
        shifted = logits - logits.max(axis=1, keepdims=True)
        chosen = shifted[np.arange(len(labels)), labels.astype(np.int64)]
        return np.asarray(np.log(np.exp(shifted).sum(axis=1)) - chosen)
    if head.task == "binary":
        return np.asarray(np.maximum(logits, 0) - logits * labels + np.log1p(np.exp(-np.abs(logits))))
    return np.asarray((logits - head.targets(labels)) ** 2)
