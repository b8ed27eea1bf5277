"""The number of pods of a StatefulSet, readers or parameter servers, which follows what the controller wants."""

from __future__ import annotations

import time
from collections.abc import Callable

from trainer.errors import ClusterError
from trainer.job.launch.cluster.kubernetes_api import KubernetesApi, member_of
from trainer.job.launch.cluster.object_names import StatefulSetName
from trainer.job.launch.cluster.suspension import Suspension
from transforms.errors import HeadraceError

#: After a failed request, or while hosts are not admitted, between requests; and between looks whether the number is still set.
_RETRY_SECS, _CHECK_SECS = 5.0, 30.0


class SetScale:
    """Sets the number of pods of a StatefulSet by its ``scale``, which leaves the rest of the object alone.

    They run only while the JobSet of hosts does: a queue may admit that late, and a person may suspend it.

    Args:
        api: of the cluster.
        place: of the StatefulSet.
        hosts: the JobSet of hosts.
        on_message: called with a sentence about a request that failed, or a StatefulSet that is missing.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        api: KubernetesApi,
        place: StatefulSetName,
        hosts: Suspension,
        on_message: Callable[[str], None] = lambda message: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._place, self._hosts = api, place, hosts
        self._on_message, self._clock = on_message, clock
        self._wanted: int | None = None
        self._next_secs = 0.0
        self._problem = ""

    def follow(self, wanted: int) -> None:
        """Have so many pods run. Call it often: it asks the cluster after a change, and now and then."""
        if self._clock() < self._next_secs and (wanted == self._wanted or self._problem):
            return
        wait_secs = _RETRY_SECS
        try:
            is_waiting = wanted > 0 and self._hosts.is_suspended()
            is_there = self._set(0 if is_waiting else wanted)
            problem = "" if is_there else f"StatefulSet {self._place} is not there"
            if is_there and not is_waiting:
                wait_secs = _CHECK_SECS
        except HeadraceError as error:
            problem = f"StatefulSet {self._place}: {error.what}: {error.value}"
        if problem and problem != self._problem:
            self._on_message(problem)
        self._problem, self._wanted = problem, wanted
        self._next_secs = self._clock() + wait_secs

    def end(self) -> bool:
        """Have no pod run, at once. Returns whether the cluster has agreed."""
        self._next_secs = 0.0
        self.follow(0)
        return not self._problem

    def _set(self, pods: int) -> bool:
        """Set the number. Returns whether the StatefulSet is there. Raises :class:`ClusterError`."""
        path = self._place.scale_path
        scale = self._api.get(path)
        if scale is None:
            return False
        found = member_of(scale, "spec").get("replicas", 0)
        if not isinstance(found, int):
            raise ClusterError("a scale must have a number of pods", where=path, value=str(found)[:100])
        if found != pods:
            self._api.patch(path, {"spec": {"replicas": pods}})
        return True
