"""The candidates of a trial, from the gentlest to the boldest. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainer.run.choosing.rules import DataFacts, Options, batch_rows_of

#: The events, and the steps, that all passes of a trial over the sample may train, for each candidate.
_TRIAL_EVENTS, _TRIAL_STEPS = 160_000, 600
_MOST_PASSES = 16
#: A linear model, whose steps are short and whose loss falls slowly where one label is rare, may train so many times as much.
_OF_LINEAR = 3
#: The network is chosen only if none of these options is given, since they are about a certain one.
_OF_NETWORKS = ("deep", "network", "bottom_mlp", "top_mlp", "dropout", "cross_layers", "cross_rank", "cross_structure",
                "activation", "dense_bias", "tower_modules", "task_mlp")  # fmt: skip
#: Options of the linear model whose steps shrink as one by the number of events, beside those of :data:`_NAMES`. Its other rates are steps
#: of a fixed size, by which the weights are those of the newest events: too noisy for small logs, and moved by a newest share that is
#: trained several times in a row.
_NEWTON = {"linear_optimizer": "newton", "dense_optimizer": "newton", "linear_initial_accumulator": 5.0}
_NAMES = (
    "deep",
    "network",
    "linear_learning_rate",
    "embedding_learning_rate",
    "dense_learning_rate",
    "embedding_initial_stddev",
)
_BY_NEWTON = "a linear model by Newton's method"
#: Name and, in the order of :data:`_NAMES`, options. A network has gradients from small rows only at quick rates, so its rates and the
#: first deviation of rows go together.
_DRAFTS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("a cautious linear model", (False, "dlrm", 0.01, 0.01, 0.001, 0.01)),
    ("a slow linear model", (False, "dlrm", 0.03, 0.01, 0.003, 0.01)),
    ("a linear model", (False, "dlrm", 0.1, 0.01, 0.003, 0.01)),
    ("a quick linear model", (False, "dlrm", 0.4, 0.01, 0.01, 0.01)),
    (_BY_NEWTON, (False, "dlrm", 1.0, 0.01, 1.0, 0.01)),
    ("linear part and factorization machine", (True, "fm", 0.05, 0.05, 0.01, 0.1)),
    ("linear part and cross layers", (True, "dcn", 0.02, 0.01, 0.003, 0.01)),
    ("linear part and quick cross layers", (True, "dcn", 0.05, 0.05, 0.01, 0.25)),
    ("linear part and MLPs", (True, "dlrm", 0.05, 0.01, 0.003, 0.01)),
    ("linear part and bold MLPs", (True, "dlrm", 0.1, 0.03, 0.003, 0.01)),
    ("linear part, quick and bold MLPs", (True, "dlrm", 0.05, 0.05, 0.01, 0.01)),
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """Options of one candidate of a trial, and its name for reasons."""

    name: str
    options: Mapping[str, Any]

    @property
    def is_linear(self) -> bool:
        """Whether it has no network."""
        return not self.options["deep"]

    @property
    def family(self) -> str:
        """Its network, or "linear": candidates of one family count as equally simple."""
        return "linear" if self.is_linear else str(self.options.get("network", "dlrm"))


def most_passes(facts: DataFacts, batch_rows: int = 0, *, is_linear: bool = False) -> int:
    """The most passes of a trial: several for a small log, one for a large log; ``batch_rows``: if they are given."""
    sampled = max(facts.sampled, 1)
    steps = -(-sampled // (batch_rows or batch_rows_of(facts.events)))
    passes = min(_TRIAL_EVENTS // sampled, _TRIAL_STEPS // steps)
    return min(max(passes * _OF_LINEAR if is_linear else passes, 1), _MOST_PASSES)


def candidates_of(given: Options, *, hosts: int = 1) -> tuple[Candidate, ...]:
    """The candidates of the first round; options in ``given`` are the same in all of them, and equal candidates are one.

    ``hosts``: the most hosts that train a batch each. The rate and the prior of a Newton step are for the events of one batch, so a job
    of several has such a candidate only where it is given.
    """
    is_free = not any(option in given for option in _OF_NETWORKS)
    found: dict[str, Candidate] = {}
    for name, values in _DRAFTS:
        options = {"linear": True, **dict(zip(_NAMES, values, strict=True))}
        if options["network"] != "dlrm" and not is_free and given.get("network") != options["network"]:
            continue
        if name == _BY_NEWTON:
            is_for_one = hosts > 1 and "linear_optimizer" not in given
            if is_for_one or given.get("deep") or not _allow_newton(given, options):
                continue
            options |= _NEWTON
        merged = {**options, **{key: given[key] for key in options if key in given}}
        effective = {key: value for key, value in merged.items() if _matters(key, merged)}
        if merged["deep"] or merged["linear"]:
            found.setdefault(repr(sorted(effective.items())), Candidate(name, effective))
    return tuple(found.values())


def _allow_newton(given: Options, rates: Options) -> bool:
    """Whether given options leave a Newton step possible; a given rate is about Adagrad unless the optimizer is given too."""
    own = {**_NEWTON}
    if "linear_optimizer" not in given:
        own |= {name: rates[name] for name in ("linear_learning_rate", "dense_learning_rate")}
    return all(given.get(option, value) == value for option, value in own.items())


def variants_of(
    best: Candidate, given: Options, *, embedded: bool, slice_has_tables: bool = False
) -> tuple[Candidate, ...]:
    """The candidates of the second round: the best one of the first, with means against memorised ids.

    Tables in a TPU slice have neither weight decay nor rows that updates leave out.
    """
    if not embedded:
        return ()
    drafts: tuple[tuple[str, str, Any, bool], ...] = (
        ("rows for ids from their third step on", "admit_after", 3, not slice_has_tables),
        ("weight decay of embeddings", "embedding_weight_decay", 0.1, not slice_has_tables and not best.is_linear),
        ("dropout of embeddings", "embedding_dropout", 0.2, not best.is_linear),
    )
    return tuple(
        Candidate(f"{best.name}, {name}", {**best.options, option: value})
        for name, option, value, is_possible in drafts
        if is_possible and option not in given
    )


def _matters(option: str, options: Options) -> bool:
    """Whether an option has an effect, given the others."""
    if option in ("linear_learning_rate", "linear_optimizer", "linear_initial_accumulator"):
        return bool(options["linear"])
    if option in ("embedding_learning_rate", "network", "embedding_initial_stddev"):
        return bool(options["deep"])
    return True
