"""The operators that exist. Duplicates and unknown names both raise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from transforms.errors import InputError, nearest
from transforms.operators.declaration import Operator


class Registry:
    """Operators by name. Reading never creates an entry."""

    def __init__(self, operators: Iterable[Operator] = ()) -> None:
        self._by_name: dict[str, Operator] = {}
        for operator in operators:
            self.add(operator)

    def add(self, operator: Operator) -> None:
        """Register one operator. Raises :class:`InputError` if the name is taken."""
        if operator.name in self._by_name:
            raise InputError("the name of an operator must be unique", value=operator.name)
        self._by_name[operator.name] = operator

    def __getitem__(self, name: str) -> Operator:
        try:
            return self._by_name[name]
        except KeyError:
            raise InputError("unknown operator", value=name, allowed=nearest(name, self._by_name)) from None

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Operator]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)
