"""An engine whose tables are on parameter servers, as training sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from trainer.options.combinations import Setup
from trainer.options.pruning import PruningOptions
from trainer.tables.batches import IdBatch
from trainer.tables.engine import EmbeddingEngine
from trainer.tables.hot_figures import HotFigures
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.routes.servers.server_link import Connect, ConnectWorker
from trainer.tables.stores.hashed.limits import TableLimits
from transforms.arrays import Array

NO_LIMITS: Mapping[str, TableLimits] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ServedOptions:
    """Options of tables on servers that are not plain: hashed, pruned, or with hot rows.

    Attributes:
        hashed: the limits of hashed tables, by name.
        pruning: the options of pruned tables, which all tables are then; None: none is.
        hot_rows: how many rows of each table are in the memory of this process, by its name.
    """

    hashed: Mapping[str, TableLimits] = field(default_factory=lambda: NO_LIMITS)
    pruning: PruningOptions | None = None
    hot_rows: Mapping[str, int] = field(default_factory=dict)


class ServedEngine(EmbeddingEngine, Protocol):
    """An engine of its own connections: rows outlive it."""

    @property
    def setup(self) -> Setup:
        """Where its tables are placed, and which of their rows have memory."""

    def begin_lookup(self, batch: IdBatch) -> Callable[[], Array]:
        """Begin a lookup; the function that is returned gives the activations, and is called once. Several end in their order."""

    @property
    def hot_figures(self) -> HotFigures | None:
        """What the hot rows of tables on servers have done; None where there are none."""

    @property
    def direct(self) -> PsEngine:
        """The engine that reads and loads rows at the servers."""

    def connect(self, servers: Sequence[Connect], workers: Sequence[ConnectWorker] = (), *, keeps_rows: bool) -> None:
        """Go on over other connections to the same servers, and to the workers of its lanes if it has some, such as those of another attempt.

        A snapshot is read to its end over the earlier ones. Raises :class:`~trainer.errors.ServerLost` for a server that has lost its rows, if
        ``keeps_rows``: they are not loaded afterwards.
        """

    def open(self) -> None:
        """Take over what another engine has loaded into the servers."""

    def take_loaded(self) -> None:
        """Take over the rows that the servers of :attr:`direct` have loaded: no earlier batch or row counts any more."""

    def finish(self) -> None:
        """Wait until the servers have made all updates. Raises what they refused."""

    def close(self) -> None:
        """End the connections."""
