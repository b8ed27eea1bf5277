"""The names of a cluster's objects, and their paths in the API."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from trainer.errors import ConfigError

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class _ObjectName:
    """The name of an object and of its namespace."""

    namespace: str
    name: str

    @classmethod
    def _parse(cls, text: str, kind: str, option: str) -> Self:
        namespace, slash, name = text.partition("/")
        if not slash or not _NAME.match(namespace) or not _NAME.match(name):
            raise ConfigError(f"a {kind} must be named by its namespace and its name", where=option, value=text[:200],
                              allowed="namespace/name, both of a-z, 0-9 and -")  # fmt: skip
        return cls(namespace, name)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class JobSetName(_ObjectName):
    """The name of a JobSet."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """The JobSet in ``namespace/name``. Raises :class:`ConfigError`."""
        return cls._parse(text, "JobSet", "--jobset")

    @property
    def path(self) -> str:
        """Its path in the API."""
        return f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{self.namespace}/jobsets/{self.name}"


class StatefulSetName(_ObjectName):
    """The name of a StatefulSet."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """The StatefulSet in ``namespace/name``. Raises :class:`ConfigError`."""
        return cls._parse(text, "StatefulSet", "--reader-set")

    @property
    def scale_path(self) -> str:
        """The path of its subresource with the number of pods."""
        return f"/apis/apps/v1/namespaces/{self.namespace}/statefulsets/{self.name}/scale"
