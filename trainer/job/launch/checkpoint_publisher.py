"""The controller's storage: it publishes commits that consist of the hosts' parts, and removes old ones."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from trainer.checkpoints.commit_manifest import CommitFacts
from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.publish import publish
from trainer.checkpoints.retention import Retention, apply_retention
from trainer.checkpoints.stored_plans import PlanDocuments, store_plan
from trainer.errors import CheckpointNotWritten
from trainer.job.control.publishing import NotPublished
from trainer.planning.plan import PartitionPlan
from trainer.planning.plan_document import find_partition
from trainer.run.preparation.job_plan import JobPlan
from trainer.scheduling.orders import Publish
from transforms.errors import HeadraceError
from warehouse.storage.locations import is_gcs

_LOG = logging.getLogger(__name__)


class CheckpointPublisher:
    """Publishes the commits of a run.

    The plans of commits in a bucket are stored there too, before the first commit that names them: the next controller may be
    on another machine, without the files of the job.

    Args:
        run_dir: the run directory, a local folder or ``gs://bucket/path``.
        find_document: the bytes of a document of the job by its digest.
        release: that the job runs.
        policy: which commits are kept.
        holds: the folder in which readers of commits hold them; None: the run directory.
    """

    def __init__(
        self,
        run_dir: str,
        find_document: Callable[[str], bytes],
        *,
        release: str,
        policy: Retention,
        holds: Path | None = None,
    ) -> None:
        self._holds = holds
        self._run_dir, self._find_document = run_dir, find_document
        self._release, self._policy = release, policy
        self._partition: tuple[str, PartitionPlan | None] = "", None
        self._facts: tuple[str, CommitFacts] | None = None

    def publish(self, order: Publish) -> None:
        """Publish a commit; see :func:`trainer.checkpoints.publish.publish`.

        Raises :class:`NotPublished` if it certainly is not published, and :class:`CommitConflict`, which holds the job.
        """
        try:
            publish(
                self._run_dir,
                order.commit,
                order.hosts,
                order.parts,
                self._find_facts,
                release=self._release,
                partition=self._find_partition(order.partition),
            )
        except CheckpointNotWritten as error:
            raise NotPublished(
                error.what, where=error.where, value=error.value, allowed=error.allowed, next_step=error.next_step
            ) from error
        try:
            apply_retention(self._run_dir, self._policy, now_secs=time.time(), holds=self._holds)
        except HeadraceError as error:  # the commit is published; what is left is removed after the next one
            _LOG.warning("old commits were not removed: %s", error.what)

    def _find_partition(self, name: str) -> PartitionPlan | None:
        if self._partition[0] != name:
            self._partition = name, find_partition(name, self._find_document)
        return self._partition[1]

    def _find_facts(self, plan: str) -> CommitFacts:
        if self._facts is None or self._facts[0] != plan:
            content = self._find_document(plan)
            found = JobPlan.from_bytes(content, f"plan {plan[:12]}")
            if is_gcs(self._run_dir):
                store_plan(open_run(self._run_dir), plan, PlanDocuments(content, self._find_document(found.solution)))
            self._facts = plan, facts_of(found)
        return self._facts[1]


def facts_of(plan: JobPlan) -> CommitFacts:
    """What the commits of a plan have in common."""
    return CommitFacts(
        identity=plan.identity.to_document(),
        data_digest=plan.identity.data_digest,
        head=plan.head.to_document(),
        segments=plan.segments,
        planned_rows=plan.planned_rows,
        held_out=None if plan.held_out is None else plan.held_out.to_document(),
    )
