"""What a byte costs to read, write and store: constants of the machine, and prices, which are the owner's."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from transforms.errors import InputError

DAYS_A_MONTH = 30.0


def _at_least_zero(where: str, value: float) -> None:
    if not (value >= 0 and math.isfinite(value)):
        raise InputError("a price or a rate is a number", where=where, value=value, allowed="0 or more")


@dataclass(frozen=True, slots=True)
class Rates:
    """CPU seconds a byte on disk, checksums checked, and a column of a fragment, whatever it holds.

    The defaults are what ``benchmarks/cost_model.py`` printed on two cores of a shared x86-64 server.
    """

    raw_read_secs: float = 1.3e-8
    raw_column_secs: float = 8.2e-5
    memo_read_secs: float = 5.5e-10
    memo_column_secs: float = 1.0e-5
    memo_write_secs: float = 2.7e-9
    memo_write_column_secs: float = 5.1e-5

    def __post_init__(self) -> None:
        for rate in fields(self):
            _at_least_zero(f"Rates.{rate.name}", getattr(self, rate.name))


@dataclass(frozen=True, slots=True)
class Prices:
    """What a byte costs a month and a CPU second, in one currency; only their ratio matters.

    The defaults are list prices of public clouds in US dollars: 0.02 for a GB-month of object storage and 0.04 for the
    hour of a virtual CPU.
    """

    byte_month: float = 0.02 / 1e9
    cpu_sec: float = 0.04 / 3600

    def __post_init__(self) -> None:
        _at_least_zero("Prices.byte_month", self.byte_month)
        if not (self.cpu_sec > 0 and math.isfinite(self.cpu_sec)):
            raise InputError("a CPU second has a price", where="Prices.cpu_sec", value=self.cpu_sec, allowed="> 0")

    def storage_secs(self, horizon_days: float) -> float:
        """CPU seconds that storing one byte over the horizon is worth."""
        return self.byte_month * horizon_days / DAYS_A_MONTH / self.cpu_sec


#: What ``benchmarks/cost_model.py`` printed.
MEASURED_RATES = Rates()
#: List prices of public clouds.
LIST_PRICES = Prices()
