"""Choose a run's options: read a sample, apply the rules, run the trial.

Deterministic: equal data and given options give equal choices. A run with a checkpoint keeps the options that are not given.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trainer.errors import BadLabel, ConfigError
from trainer.model.dense_scaling import scaling_of
from trainer.model.heads import Head, LabelFigures
from trainer.model.inputs import InputLayout, TypedInput, lay_out
from trainer.model.task_heads import AnyHead, check_task_options, heads_of
from trainer.model.user_functions import with_code_digests
from trainer.options.config import TrainConfig, continued_options, recorded_options
from trainer.options.resume_rules import option_changes
from trainer.run.choosing.calibration_choice import choose_calibration
from trainer.run.choosing.candidates import Candidate, candidates_of, most_passes, variants_of
from trainer.run.choosing.rules import Choices, DataFacts, chosen_by_rule
from trainer.run.choosing.selection import Difference, Trial, difference, gentle_of, is_better_than_base, simplest_of
from trainer.run.choosing.slices import read_sample, time_slices
from trainer.run.choosing.staleness_choice import MOST_CHOSEN, choose_staleness, measure_lateness, staleness_bound
from trainer.run.choosing.trial import Tell, TrialData, TrialModels, try_candidates
from trainer.run.progress.identity import with_neutral_options
from trainer.run.reading.batches import make_batches
from trainer.run.reading.columns import DecodedFragment
from trainer.run.reading.stream import ReadFragment
from trainer.run.weights.saved_run import read_newest_run
from transforms.arrays import Array
from warehouse.solution.solution import ReadSolution


def choose_config(
    solution: ReadSolution,
    read: ReadFragment,
    given: Mapping[str, Any],
    *,
    run_dir: str,
    tell: Tell | None = None,
    hosts: int = 1,
    slice_has_tables: bool = False,
) -> TrainConfig:
    """The options of a run: those ``given``, else those of its checkpoint, else choices by the data.

    ``hosts``: the most hosts of the job that trains;
    ``slice_has_tables``: its tables are in a TPU slice, which lacks some options of tables.
    An option that is None or "auto" counts as not given, and a staleness that is "auto" or a bound is chosen by the ids. Raises :class:`ConfigError` for options out of range, and the errors of reading a fragment.
    """
    asked, bound = _asked(given), staleness_bound(given.get("staleness"))
    plain = with_code_digests(TrainConfig.from_document(asked, run_dir=run_dir))
    saved = read_newest_run(run_dir, on_skip=_ignore, weights=False)
    if saved is not None:
        return _continued(saved.identity.config, asked, run_dir, tell or _ignore)
    layout = lay_out([TypedInput(item.name, item.type) for item in solution.inputs], plain)
    head = heads_of(solution.target)
    check_task_options(plain, head)
    try:
        sample = read_sample(solution, read, layout, head)
    except BadLabel:
        return plain  # training refuses these labels before its first step, with their number
    facts = _facts(solution, sample, layout, head)
    if not facts.sampled:
        return plain
    head = head.fitted(_figures(head, sample))
    by_rule = chosen_by_rule(facts, asked)
    ruled = dataclasses.replace(plain, **by_rule.options)
    by_trial = _by_trial(facts, sample, asked, ruled, layout, head, tell or _ignore, hosts, slice_has_tables)
    reasons = {**by_rule.reasons, **by_trial.reasons}
    config = dataclasses.replace(ruled, **by_trial.options)
    if bound is not None:
        most = 1 if slice_has_tables else MOST_CHOSEN
        staleness, reasons["staleness"] = _staleness(config, sample, layout, hosts, bound, most)
        config = dataclasses.replace(config, staleness=staleness)
    return dataclasses.replace(config, chosen=dict(sorted(reasons.items())))


def _staleness(
    config: TrainConfig, sample: Sequence[DecodedFragment], layout: InputLayout, hosts: int, bound: float, most: int
) -> tuple[int, str]:
    """The staleness by the ids of the sample, in batches of the run's steps, and the reason."""
    if not layout.features:
        return 0, "no input has ids: there are no rows to look up"
    batches = [one.ids for one in make_batches(sample, layout, batch_rows=config.rows_of_step(hosts))]
    return choose_staleness(measure_lateness([one.table.name for one in layout.features], batches, most), bound, most)


def _continued(recorded: Mapping[str, Any], asked: Mapping[str, Any], run_dir: str, tell: Tell) -> TrainConfig:
    """The options of the rest of a run: those asked for, else those that it began with; what changes is said."""
    given = TrainConfig.from_document(continued_options(recorded, asked), run_dir=run_dir)
    changes = option_changes(with_neutral_options(recorded), recorded_options(given.to_document()))
    for one in changes:
        if one.is_allowed:
            tell(f"{one.text()}: the rest of the run is trained with it")
    changed = {one.option for one in changes}
    return dataclasses.replace(given, chosen={name: why for name, why in given.chosen.items() if name not in changed})


def options_before_choices(given: Mapping[str, Any], *, run_dir: str) -> TrainConfig:
    """The options of a run that are known without its data: those ``given``, those of its checkpoint, and defaults."""
    saved = read_newest_run(run_dir, on_skip=_ignore, weights=False)
    asked = _asked(given)
    options = asked if saved is None else continued_options(saved.identity.config, asked)
    return TrainConfig.from_document(options, run_dir=run_dir)


def _asked(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are given."""
    own = ("hot_rows",)  # what it says is no choice by a trial
    asked = {name: value for name, value in given.items() if value is not None and (value != "auto" or name in own)}
    if staleness_bound(asked.get("staleness")) is not None:
        del asked["staleness"]
    return asked


def _ignore(message: str) -> None:
    """The default for messages."""


def _facts(solution: ReadSolution, sample: Sequence[DecodedFragment], layout: InputLayout, head: AnyHead) -> DataFacts:
    labels = np.concatenate([np.zeros(head.label_shape(0), np.float32), *(part.labels for part in sample)])
    dense = np.concatenate([np.zeros((0, layout.number_width), np.float32), *(part.dense for part in sample)])
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
    ruled: TrainConfig,
    layout: InputLayout,
    head: AnyHead,
    tell: Tell,
    hosts: int,
    slice_has_tables: bool,
) -> Choices:
    candidates = candidates_of(given, hosts=hosts if ruled.batch_rows_per_host else 1)
    if not candidates:
        raise ConfigError("deep and linear must not both be false", where="deep, linear", value=False,
                          allowed="one of them true", next_step="leave one of them out")  # fmt: skip
    slices = time_slices(sample)
    if why := _without_trial(facts, candidates, given, slices):
        return _untried(candidates[0], given, why)
    passes, linear_passes = (_most_passes(given, facts, is_linear=is_linear) for is_linear in (False, True))
    data = TrialData(dataclasses.replace(ruled, passes=passes), layout, head, slices, linear_passes)
    base = data.base_losses()
    models = TrialModels()
    trials = try_candidates(candidates, data, models, base, tell)
    rarer = facts.rarer * sum(map(len, base)) / facts.sampled
    best = simplest_of([one for one in trials if one.slices == len(slices)])
    if not is_better_than_base(best, base, rarer):
        gentle = gentle_of([one for one in trials if one.slices == len(slices)], base)
        return _decided(gentle, trials, base, given, facts, _no_better(best, base))
    drafts = variants_of(best.candidate, given, embedded=facts.embedded, slice_has_tables=slice_has_tables)
    variants = try_candidates(drafts, data, models, base, tell, noun=f"variants of {best.candidate.name}")
    gaining = [one for one in variants if one.slices == len(slices) and difference(best.best, one.best).is_clear]
    chosen = min(gaining, key=lambda one: one.mean) if gaining else best
    choices = _decided(chosen, [*trials, *variants], base, given, facts, "")
    can_calibrate = isinstance(head, Head) and head.task == "binary" and ruled.held_out_share > 0
    if can_calibrate and "calibration" not in given:
        kind, reason = choose_calibration([data.labels(k) for k in range(len(slices))], chosen)
        choices.options["calibration"], choices.reasons["calibration"] = kind, reason
    return choices


def _most_passes(given: Mapping[str, Any], facts: DataFacts, *, is_linear: bool) -> int:
    return given.get("passes") or most_passes(facts, given.get("batch_rows", 0), is_linear=is_linear)


def _without_trial(
    facts: DataFacts, candidates: Sequence[Candidate], given: Mapping[str, Any], slices: Sequence[object]
) -> str:
    """Why there is nothing to compare; empty if there is."""
    if len(candidates) == 1 and "passes" in given:
        return "there is nothing to compare it with"
    if not slices:
        return f"{facts.sampled:,} events are too few for a comparison"
    if facts.positives is not None and not facts.rarer:
        return f"every label of the sample is {1 if facts.positives else 0}: there is nothing to learn or compare"
    return ""


def _untried(candidate: Candidate, given: Mapping[str, Any], why: str) -> Choices:
    options = {name: value for name, value in candidate.options.items() if name not in given}
    return Choices(options, dict.fromkeys(options, f"{candidate.name}: {why}"))


def _decided(
    chosen: Trial, trials: Sequence[Trial], base: Sequence[Array], given: Mapping[str, Any], facts: DataFacts, why: str
) -> Choices:
    """The options of a trial's outcome; ``why``: the reason for it, or empty for that of the best candidate."""
    own, validated = difference(base, chosen.best), sum(map(len, base))
    mean = float(np.concatenate(base).mean()) or 1.0
    reason = f"{chosen.candidate.name}: {why}" if why else (
        f"{chosen.candidate.name}: on {len(base)} slices of the newest {facts.sampled:,} events, {validated:,} in all, the loss is "
        f"{1 - own.gain / mean:.4f} ± {own.error / mean:.4f} of the base rate's; the best of the simplest kind of model within one "
        f"standard error of the best of {len(trials)} candidates"
    )  # fmt: skip
    choices = Choices()
    for name, value in chosen.candidate.options.items():
        if name not in given:
            choices.options[name], choices.reasons[name] = value, reason
    if "passes" not in given:
        limit = _most_passes(given, facts, is_linear=chosen.candidate.is_linear)
        choices.options["passes"] = chosen.passes
        choices.reasons["passes"] = (
            f"a log of {facts.events:,} events is passed once"
            if limit == 1
            else f"the loss on the slices is lowest after pass {chosen.passes} of at most {limit}"
        )
    choices.options["trial"] = tuple(_row(one, one is chosen, chosen, base) for one in trials)
    return choices


def _row(trial: Trial, is_chosen: bool, chosen: Trial, base: Sequence[Array]) -> dict[str, Any]:
    """A candidate as the run records it: losses and errors are shares of the base rate's loss on the same events."""
    own = base[: trial.slices]
    mean = float(np.concatenate(own).mean()) or 1.0
    against_base = difference(own, trial.best)
    to_chosen = Difference(0.0, 0.0) if is_chosen else difference(trial.best, chosen.best[: trial.slices])
    return {
        "name": trial.candidate.name,
        "passes": trial.passes,
        "slices": trial.slices,
        "events": sum(map(len, own)),
        "loss": 1 - against_base.gain / mean,
        "loss_error": against_base.error / mean,
        "behind": to_chosen.gain / mean,
        "behind_error": to_chosen.error / mean,
        "is_linear": trial.candidate.is_linear,
        "is_chosen": is_chosen,
    }


def _no_better(best: Trial, base: Sequence[Array]) -> str:
    mean = float(np.concatenate(base).mean()) or 1.0
    found = difference(base, best.best)
    return (
        f"no candidate is clearly better than the base rate on the newest {sum(map(len, base)):,} events of the sample "
        f"(best: {best.candidate.name}, {found.gain / mean:+.2%} ± {found.error / mean:.2%})"
    )
