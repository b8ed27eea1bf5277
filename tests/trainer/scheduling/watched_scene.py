"""A job with parameter servers or embedding workers, which its supervisor watches."""

from __future__ import annotations

from typing import ClassVar

from tests.trainer.scheduling.test_advance import Scene
from trainer.scheduling.current_orders import orders_for
from trainer.scheduling.events import Left, Notice, Role, RoleKind


class Watched(Scene):
    """A job that processes of a kind have joined."""

    kind: ClassVar[RoleKind]

    def __init__(self, there: int = 2, hosts: int = 1, **settings: object) -> None:
        super().__init__(hosts, **settings)  # type: ignore[arg-type]
        self.join(*(self.role(n) for n in range(there)))

    def role(self, n: int) -> Role:
        return Role(self.kind, f"{self.kind[0]}{n}")

    def notice(self, *numbers: int, grace_secs: float = 30.0) -> None:
        for n in numbers:
            self.do(Notice(self.now, grace_secs, self.role(n)))

    def orders_of(self, n: int) -> list[object]:
        return list(orders_for(self.job, self.role(n), self.number(self.role(n))))

    def leave(self, n: int) -> None:
        self.do(Left(self.now, self.role(n), self.number(self.role(n))))

    def commit_early(self, unit: int) -> None:
        self.place(*[unit] * len(self.job.hosts))
        self.commit()
