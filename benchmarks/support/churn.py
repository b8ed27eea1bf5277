"""A simulated history of models: cloned, edited by one feature, retired. Pure and seeded.

The paper states two averages: 22 models read a component, and 95 % of a model's components exist already. The other
parameters are assumptions that lead to these averages:

* a team's models are clones of the model in production, or of any other live one, each with one input replaced;
* some clones have two inputs replaced;
* at intervals the newest clone goes to production; the oldest experiment is retired for each new one.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ChurnConfig:
    """Parameters of a history.

    Attributes:
        live: the number of live models, each of ``inputs`` inputs.
        births_a_day: new models per day; as many are retired.
        from_production: the share of clones of the model in production.
        two_edits: the share of clones with two inputs replaced.
        launch_days: the days between clones that go to production.
        hours_a_day: new partitions per day.
        kept_days: the days of the log that are kept; a new model reads all of them.
    """

    seed: int = 5
    days: int = 365
    live: int = 40
    inputs: int = 60
    births_a_day: int = 1
    from_production: float = 0.8
    two_edits: float = 0.1
    launch_days: int = 30
    hours_a_day: int = 2
    kept_days: int = 28


@dataclass(frozen=True, slots=True)
class Born:
    """A new model, by the numbers of its components."""

    name: str
    components: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Day:
    """The events of a day, after its data arrived."""

    born: tuple[Born, ...]
    retired: tuple[str, ...]


@dataclass(slots=True)
class _Team:
    random: random.Random
    unused: int
    live: list[Born] = field(default_factory=list)
    production: Born = Born("", ())
    born: int = 0

    def clone(self, config: ChurnConfig) -> Born:
        parent = self.production if self.random.random() < config.from_production else self.random.choice(self.live)
        components = list(parent.components)
        edits = 2 if self.random.random() < config.two_edits else 1
        for place in self.random.sample(range(len(components)), edits):
            components[place] = self.unused
            self.unused += 1
        self.born += 1
        made = Born(f"model_{self.born:05d}", tuple(components))
        self.live.append(made)
        return made

    def retire(self) -> str:
        """Remove the oldest model that is not in production, and return it."""
        oldest = next(model for model in self.live if model is not self.production)
        self.live.remove(oldest)
        return oldest.name


def churn(config: ChurnConfig) -> tuple[Day, ...]:
    """The days in order; the first one has all initial models."""
    team = _Team(random.Random(config.seed), unused=config.inputs)
    team.production = Born("model_00000", tuple(range(config.inputs)))
    team.live.append(team.production)
    first = (team.production, *(team.clone(config) for _ in range(config.live - 1)))
    days = [Day(first, ())]
    for number in range(1, config.days):
        born = tuple(team.clone(config) for _ in range(config.births_a_day))
        if number % config.launch_days == 0:
            team.production = team.live[-1]
        days.append(Day(born, tuple(team.retire() for _ in born)))
    return tuple(days)


def readers_a_component(live: Sequence[Born]) -> float:
    """The mean number of models that read a component."""
    components = {number for model in live for number in model.components}
    return sum(len(model.components) for model in live) / len(components)
