"""Which training options may have another value when a run goes on from a checkpoint, and why. Pure.

A run that goes on with the values it had has the bits of one that was never stopped. Options whose values are no part of what a checkpoint
holds may be others from there on: the rest of the run is trained with them. All others would make the checkpoint one of another model, or
its counts those of other epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Change(StrEnum):
    """When an option may have another value."""

    ANY_TIME = "at any time"
    FROM_HERE = "from here on"
    NEVER = "never"


#: Whether an option may change between two documents of all options.
Between = Callable[[Mapping[str, object], Mapping[str, object]], bool]


def _always(before: Mapping[str, object], after: Mapping[str, object]) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class ResumeRule:
    """The rule of an option.

    Attributes:
        change: :attr:`Change.ANY_TIME`: no weight depends on it, and checkpoints do not have it. :attr:`Change.FROM_HERE`: weights depend on it.
        reason: why.
        between: whether it may change, by the documents of all options before and after.
        only: which values may change, for the page; "" for all.
    """

    change: Change
    reason: str
    between: Between = _always
    only: str = ""


def _unless(option: str, *values: object) -> Between:
    """That an option has none of these values before and after."""

    def between(before: Mapping[str, object], after: Mapping[str, object]) -> bool:
        return not any(one.get(option) in values for one in (before, after))

    return between


def _without_newton(before: Mapping[str, object], after: Mapping[str, object]) -> bool:
    return "newton" not in (before.get("dense_optimizer"), before.get("linear_optimizer"))


def _any_time(reason: str) -> ResumeRule:
    return ResumeRule(Change.ANY_TIME, reason)


def _from_here(reason: str, between: Between = _always, only: str = "") -> ResumeRule:
    return ResumeRule(Change.FROM_HERE, reason, between, only)


def _never(reason: str) -> ResumeRule:
    return ResumeRule(Change.NEVER, reason)


_RATE = "slots of optimizers do not depend on rates"
_SLOTS_OF_ROWS = "weights stay, and so do sums of squared gradients; other slots of rows begin again, FTRL's where weights are what they were"
_SHAPE = "it is the shape of trained weights"
_NETWORK = "trained weights are those of this network"
_INITIAL = "rows that have not occurred yet begin with it, as those that have"
_BEGAN = "trained weights began with it"
_EPOCHS = "epochs that are done are counted by it"
_RECORD = "it records how the options were chosen"

#: By option, in the order of :class:`~trainer.options.config.TrainConfig`.
RULES: Mapping[str, ResumeRule] = MappingProxyType({
    "run_dir": _any_time("a run may be moved"),
    "batch_rows": _from_here("a checkpoint is between two batches, and says how many events these had; the slots of newton are in gradients of a batch's mean loss", _without_newton, "without an optimizer newton"),
    "batch_rows_per_host": _never("the units of a job are cut for it; training in one process may take either"),
    "dim": _never(_SHAPE),
    "dims": _never(_SHAPE),
    "combiner": _never(_NETWORK),
    "combiners": _never(_NETWORK),
    "tables": _never("rows belong to their table"),
    "embedding_optimizer": _from_here(_SLOTS_OF_ROWS),
    "embedding_learning_rate": _from_here(_RATE),
    "embedding_initial_accumulator": _never(_INITIAL),
    "embedding_initial_stddev": _never(_INITIAL),
    "embedding_weight_decay": _from_here("it is a part of each update, and of no slot"),
    "embedding_dropout": _from_here("its random state is in the checkpoint", _unless("embedding_dropout", 0), "above 0 to above 0"),
    "admit_after": _from_here("updates of rows are counted in a slot, without which none can be added", _unless("admit_after", 1), "above 1 to above 1"),
    "dense_optimizer": _from_here("weights stay, and all slots of dense weights begin again"),
    "dense_learning_rate": _from_here(_RATE),
    "network": _never(_NETWORK),
    "network_digest": _never(_NETWORK),
    "embeddings": _never("rows belong to their table"),
    "embeddings_digest": _never("rows belong to their table"),
    "cross_layers": _never(_SHAPE),
    "cross_rank": _never(_SHAPE),
    "cross_structure": _never(_NETWORK),
    "activation": _never(_NETWORK),
    "dense_bias": _never(_SHAPE),
    "bottom_mlp": _never(_SHAPE),
    "top_mlp": _never(_SHAPE),
    "dropout": _from_here("its random state is in the checkpoint", _unless("dropout", 0), "above 0 to above 0"),
    "partitions_per_epoch": _never(_EPOCHS),
    "passes": _never(_EPOCHS),
    "held_out_share": _never("the held-out events of a run are those of its first pass"),
    "stop_passes_early": _from_here("it is asked for at the end of each pass"),
    "calibration": _from_here("its map is fitted when training ends, to held-out events, which a run without one may not have", _unless("calibration", "none"), "platt to isotonic and back"),
    "seed": _never(_INITIAL),
    "deterministic": _from_here("it orders the sums of each step"),
    "threads": _from_here("it orders the sums of each step"),
    "count_events": _never("events that were trained before would have no count"),
    "deep": _never(_NETWORK),
    "linear": _never(_NETWORK),
    "linear_learning_rate": _from_here(_RATE),
    "linear_initial_accumulator": _never(_INITIAL),
    "linear_optimizer": _from_here(_SLOTS_OF_ROWS),
    "initial_bias": _never(_BEGAN),
    "initial_biases": _never(_BEGAN),
    "task_weights": _from_here("they are weights of the losses of each step"),
    "task_mlp": _never(_SHAPE),
    "dense_scaling": _never("trained weights are for numbers of this scale"),
    "events_per_epoch": _never(_EPOCHS),
    "chosen": _from_here(_RECORD),
    "trial": _from_here(_RECORD),
    "hashed": _never("rows are at the places of a table of this size"),
    "learning_rate_schedule": _from_here("it is a function of the steps of the run, and slots of optimizers do not depend on rates"),
    "pruning": _from_here("of more rows than have places the most important ones stay", _unless("pruning", None), "its options, where it is given before and after"),
    "sequences": _never(_NETWORK),
    "tower_modules": _never(_NETWORK),
    "staleness": _from_here("a checkpoint has all updates of its steps"),
    "engine": _any_time("checkpoints of both engines are the same"),
    "keep_checkpoints": _any_time("it says which checkpoints are removed"),
    "prefetch_fragments": _any_time("it says how far reading is ahead"),
    "statistics_share": _any_time("statistics are beside the weights"),
    "hot_rows": _any_time("no bit depends on which rows are hot"),
})  # fmt: skip


def changes_weights(option: str) -> bool:
    """Whether weights depend on an option, so that documents of options have it."""
    return RULES[option].change is not Change.ANY_TIME


@dataclass(frozen=True, slots=True)
class OptionChange:
    """Another value of an option than that of the checkpoint that a run goes on from.

    ``is_allowed``: whether the run may go on with it.
    """

    option: str
    before: object
    after: object
    is_allowed: bool

    @property
    def reason(self) -> str:
        """Why it may change, or why not."""
        rule = RULES.get(self.option)
        return "this release does not have it" if rule is None else rule.reason

    def text(self) -> str:
        """One line."""
        return f"option {self.option} is {self.after!r}, was {self.before!r}"


def option_changes(before: Mapping[str, object], after: Mapping[str, object]) -> tuple[OptionChange, ...]:
    """The options with other values, by name; both are documents of all options that affect weights."""
    names = sorted({*before, *after})
    return tuple(
        OptionChange(one, before.get(one), after.get(one), _is_allowed(one, before, after))
        for one in names
        if before.get(one) != after.get(one)
    )


def _is_allowed(option: str, before: Mapping[str, object], after: Mapping[str, object]) -> bool:
    rule = RULES.get(option)
    return rule is not None and rule.change is not Change.NEVER and rule.between(before, after)
