"""Suspend and resume a JobSet: by its own field, or if Kueue queues it by that of its Workload.

Kueue resumes a suspended JobSet whose Workload is admitted, so a queued JobSet is suspended by deactivating its Workload.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from trainer.errors import ClusterError
from trainer.job.launch.cluster.kubernetes_api import KubernetesApi, member_of
from trainer.job.launch.cluster.object_names import JobSetName

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_JOB_LABEL = "kueue.x-k8s.io/job-uid"


@dataclass(frozen=True, slots=True)
class Patch:
    """A change of an object.

    Attributes:
        path: of the object in the API.
        document: that is merged into it.
    """

    path: str
    document: Mapping[str, Any]


def jobset_patches(place: JobSetName, jobset: Mapping[str, Any], is_suspended: bool) -> tuple[Patch, ...]:
    """The change that suspends or resumes a JobSet without a queue; none if it is so already."""
    if bool(member_of(jobset, "spec").get("suspend", False)) == is_suspended:
        return ()
    return (Patch(place.path, {"spec": {"suspend": is_suspended}}),)


def workload_patches(
    place: JobSetName, workloads: Sequence[Mapping[str, Any]], is_suspended: bool
) -> tuple[Patch, ...]:
    """The changes that deactivate or activate Workloads; none for those that are so already."""
    return tuple(
        Patch(f"{_workloads_path(place)}/{name}", {"spec": {"active": not is_suspended}})
        for one in workloads
        if isinstance(name := member_of(one, "metadata").get("name"), str)
        and bool(member_of(one, "spec").get("active", True)) == is_suspended
    )


class Suspension:
    """Suspends and resumes one JobSet.

    Args:
        api: of the cluster.
        place: of the JobSet.
    """

    def __init__(self, api: KubernetesApi, place: JobSetName) -> None:
        self._api, self.place = api, place

    def set(self, is_suspended: bool) -> bool:
        """Suspend or resume the JobSet. Returns whether it is there, with its Workload if it is queued.

        Raises :class:`ClusterError`.
        """
        jobset = self._api.get(self.place.path)
        if jobset is None:
            return False
        metadata = member_of(jobset, "metadata")
        if QUEUE_LABEL in member_of(metadata, "labels"):
            workloads = self._workloads(str(metadata.get("uid", "")))
            patches, is_there = workload_patches(self.place, workloads, is_suspended), bool(workloads)
        else:
            patches, is_there = jobset_patches(self.place, jobset, is_suspended), True
        for one in patches:
            self._api.patch(one.path, one.document)
        return is_there

    def is_suspended(self) -> bool:
        """Whether the JobSet has no pods: it is suspended, as Kueue leaves it until it is admitted, or not there.

        Raises :class:`ClusterError`.
        """
        jobset = self._api.get(self.place.path)
        return jobset is None or bool(member_of(jobset, "spec").get("suspend", False))

    def is_finished(self) -> bool:
        """Whether the JobSet has completed, has failed or is not there. Raises :class:`ClusterError`."""
        jobset = self._api.get(self.place.path)
        conditions = [] if jobset is None else member_of(jobset, "status").get("conditions")
        return jobset is None or any(
            isinstance(one, Mapping) and one.get("type") in ("Completed", "Failed") and one.get("status") == "True"
            for one in (conditions if isinstance(conditions, list) else ())
        )

    def _workloads(self, uid: str) -> list[Mapping[str, Any]]:
        selector = quote(f"{_JOB_LABEL}={uid}", safe="")
        path = f"{_workloads_path(self.place)}?labelSelector={selector}"
        found = self._api.get(path)
        items = [] if found is None else found.get("items")
        if not isinstance(items, list) or not all(isinstance(one, Mapping) for one in items):
            raise ClusterError("a list of the cluster's API must have items", where=path)
        return items


def _workloads_path(place: JobSetName) -> str:
    return f"/apis/kueue.x-k8s.io/v1beta1/namespaces/{place.namespace}/workloads"
