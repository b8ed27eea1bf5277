"""An engine whose tables are on parameter servers, as training sees it."""

from __future__ import annotations

from typing import Protocol

from trainer.embedding.engine import EmbeddingEngine


class ServedEngine(EmbeddingEngine, Protocol):
    """An engine of its own connections: rows outlive it."""

    def open(self) -> None:
        """Take over what another engine has loaded into the servers."""

    def finish(self) -> None:
        """Wait until the servers have made all updates. Raises what they refused."""

    def close(self) -> None:
        """End the connections."""
