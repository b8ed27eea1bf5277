"""Where sequences are among the embedded inputs of a model, by the option ``sequences``.

A sequence is a feature whose activations are the rows of an event's last ids, the newest one first, and zeros after the oldest one. Batches
have its number of ids beside the dense numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trainer.errors import ConfigError
from trainer.options.config import TrainConfig
from trainer.options.sequences import SequenceOptions
from trainer.tables.spec import FeatureSpec
from transforms.errors import nearest


@dataclass(frozen=True, slots=True)
class SequencePlace:
    """A sequence, and the positions of its inputs among the embedded ones.

    Attributes:
        options: its length and encoder.
        rows: the position of its own input.
        target: that of its target; None without one.
        gaps: that of its gaps; None without any.
    """

    options: SequenceOptions
    rows: int
    target: int | None
    gaps: int | None

    @property
    def inputs(self) -> tuple[int, ...]:
        """The positions of the inputs that have an id for each place of the sequence."""
        return (self.rows,) if self.gaps is None else (self.rows, self.gaps)


def with_sequences(
    features: Sequence[FeatureSpec], buckets: Mapping[str, int], config: TrainConfig
) -> tuple[tuple[FeatureSpec, ...], tuple[SequencePlace, ...]]:
    """The features with those of sequences as the option has them, and the places of sequences.

    Args:
        features: as the other options have them.
        buckets: of the embedded inputs, by name.

    Raises :class:`ConfigError` for a name that is no embedded input's, for inputs of one sequence whose buckets or widths do not agree, and
    for options that describe the table of a sequence which has that of its target.
    """
    found = {feature.name: feature for feature in features}
    position = {feature.name: f for f, feature in enumerate(features)}
    places = []
    for name, one in config.sequences.items():
        where = f"sequences[{name!r}]"
        for other in filter(None, (name, one.target, one.gaps)):
            _check_input(other, found, where)
        if one.target:
            _check_sharing(name, one.target, buckets, config, where)
            found[name] = FeatureSpec(name, found[one.target].table)
        _check_width(name, one, found, where)
        for other in filter(None, (name, one.gaps)):
            found[other] = replace(found[other], max_sequence_length=one.length)
        places.append(SequencePlace(one, position[name], position.get(one.target), position.get(one.gaps)))
    return tuple(found[feature.name] for feature in features), tuple(places)


def _check_input(name: str, found: Mapping[str, FeatureSpec], where: str) -> None:
    if name not in found:
        raise ConfigError("an option must name an embedded input", where=where, value=name, allowed=nearest(name, list(found)),
                          next_step="correct this training option")  # fmt: skip
    if found[name].max_sequence_length:
        raise ConfigError("the inputs of a sequence must be bags in embeddings", where=where, value=f"{name}, with max_sequence_length",
                          next_step="leave max_sequence_length out there: sequences says the length")  # fmt: skip


def _check_sharing(name: str, target: str, buckets: Mapping[str, int], config: TrainConfig, where: str) -> None:
    """Raise :class:`ConfigError` unless a sequence can have the table of its target."""
    if buckets[name] != buckets[target]:
        raise ConfigError("a sequence must have the buckets of its target, whose table it shares", where=where, value=buckets[name],
                          allowed=f"{buckets[target]}, as input {target}", next_step="hash both inputs into as many buckets")  # fmt: skip
    for option in ("dims", "combiners", "tables"):
        if name in getattr(config, option):
            raise ConfigError("an option must not describe the table of a sequence that shares its target's", where=option, value=name,
                              next_step=f"leave it out, or describe input {target}")  # fmt: skip


def _check_width(name: str, one: SequenceOptions, found: Mapping[str, FeatureSpec], where: str) -> None:
    dim = found[name].table.dim
    if one.gaps and found[one.gaps].table.dim != dim:
        raise ConfigError("gaps must have the width of their sequence, since their rows are added", where=where,
                          value=f"{found[one.gaps].table.dim} of input {one.gaps}", allowed=str(dim), next_step=f"set dims of input {one.gaps}")  # fmt: skip
    if dim % one.heads:
        raise ConfigError("heads must divide the width of a sequence", where=f"{where}.heads", value=one.heads,
                          allowed=f"a divisor of {dim}")  # fmt: skip
