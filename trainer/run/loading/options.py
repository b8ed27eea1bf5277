"""The options of a stream of batches, and the share of it that a process takes. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainer.errors import ConfigError
from trainer.options.config import TrainConfig
from trainer.run.preparation.job_plan import check_shuffled

#: The most shares of a stream, and lanes.
MOST_SHARES = 1 << 16
_MOST_AHEAD = 1 << 10


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What decides the batches of a stream, and their order.

    Attributes:
        batch_rows: the events of a batch; the last batch of an epoch may have fewer.
        shuffle_events: events are shuffled in windows of this number, a multiple of ``batch_rows``; 0: they are not.
        seed: of the shuffling.
        lanes: the contiguous parts of an epoch whose batches take turns; 1: batches are in order of time.
        partitions_per_epoch, events_per_epoch: as in :class:`~trainer.options.config.TrainConfig`; no batch has events of two epochs.
    """

    batch_rows: int = 1024
    shuffle_events: int = 0
    seed: int = 0
    lanes: int = 1
    partitions_per_epoch: int = 1
    events_per_epoch: int = 0

    def __post_init__(self) -> None:
        self.config()  # raises for the options that a training has, too
        check_count("shuffle_events", self.shuffle_events, least=0, most=2**31 - 1)
        check_count("lanes", self.lanes, least=1, most=MOST_SHARES)
        check_shuffled(self.shuffle_events, self.batch_rows)

    def config(self) -> TrainConfig:
        """The options as those of a training in one process. Raises :class:`ConfigError`."""
        return TrainConfig(
            run_dir="loader",
            batch_rows=self.batch_rows,
            seed=self.seed,
            partitions_per_epoch=self.partitions_per_epoch,
            events_per_epoch=self.events_per_epoch,
        )


@dataclass(frozen=True, slots=True)
class ReadAhead:
    """How far a stream reads ahead of its batches.

    Attributes:
        fragments: that are read before a batch needs them, beside those of the next batch.
        threads: that read and decode them.
    """

    fragments: int = 2
    threads: int = 1

    def __post_init__(self) -> None:
        check_count("fragments_ahead", self.fragments, least=0, most=_MOST_AHEAD)
        check_count("threads", self.threads, least=1, most=_MOST_AHEAD)


@dataclass(frozen=True, slots=True, order=True)
class Share:
    """A worker's share of the batches of a stream.

    Batches go to ranks in turn, a batch each in a step; the steps of a rank go to its workers in turn. So the batches of a step do not depend on the
    number of workers.

    Attributes:
        rank, world: the process among those that train together, and their number.
        worker, workers: the process that reads for it among its own, and their number.
    """

    rank: int = 0
    world: int = 1
    worker: int = 0
    workers: int = 1

    def __post_init__(self) -> None:
        check_count("world", self.world, least=1, most=MOST_SHARES)
        check_count("rank", self.rank, least=0, most=self.world - 1)
        check_count("workers", self.workers, least=1, most=MOST_SHARES)
        check_count("worker", self.worker, least=0, most=self.workers - 1)

    def batch(self, own_step: int) -> int:
        """The number of the batch of the share's ``own_step``, counted from the first one of the stream's beginning."""
        return (self.worker + own_step * self.workers) * self.world + self.rank

    def steps(self, batches: int, *, equal: bool = False) -> int:
        """The steps of the share for so many batches of all ranks; ``equal``: as many as those of the rank with the most."""
        of_rank = max(0, -(-(batches - (0 if equal else self.rank)) // self.world))
        return max(0, -(-(of_rank - self.worker) // self.workers))


def check_count(name: str, value: Any, *, least: int, most: int) -> None:
    """Raise :class:`ConfigError` for a value that is not an integer in [``least``, ``most``]."""
    if type(value) is not int or not least <= value <= most:
        raise ConfigError(f"{name} must be an integer in [{least}, {most}]", where=name, value=value)
