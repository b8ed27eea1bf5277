"""Open a chain for writing: a local folder, which is locked, or a bucket with a local folder for a link on its way."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from trainer.run.progress.lock import run_lock
from trainer.serving.deltas.chain_files import ChainPlace
from trainer.serving.deltas.local_chain import LocalChain
from trainer.serving.deltas.writable_chain import WritableChain
from warehouse.storage.locations import is_gcs


@contextmanager
def locked_chain(chain: ChainPlace, staging: Path | None = None) -> Iterator[WritableChain]:
    """A chain that links are added to.

    Args:
        chain: a local folder, which is created if absent and locked, or ``gs://bucket/path``, to which others may add links too.
        staging: for a chain in a bucket, the local folder of a link on its way, which is locked; None for a new temporary folder.

    Raises :class:`~transforms.errors.Busy` for a folder in use.
    """
    if not (isinstance(chain, str) and is_gcs(chain)):
        with run_lock(Path(chain), "chain folder"):
            yield LocalChain(Path(chain))
        return
    from trainer.serving.deltas.bucket_chain import BucketChain  # the client is loaded only for buckets

    with ExitStack() as stack:
        if staging is None:
            staging = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-link-")))
        stack.enter_context(run_lock(staging, "folder of links on their way to a bucket"))
        yield BucketChain(chain, staging)
