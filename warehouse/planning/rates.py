"""Rates of the machine to read and write bytes, and prices to store them."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from transforms.errors import InputError

DAYS_A_MONTH = 30.0


def _at_least_zero(where: str, value: float) -> None:
    if not (value >= 0 and math.isfinite(value)):
        raise InputError(f"{where} must be a finite number >= 0", where=where, value=value, allowed="0 or more")


@dataclass(frozen=True, slots=True)
class Rates:
    """CPU seconds per byte on disk, with its checksum, and per column of a fragment.

    The defaults are measurements of ``benchmarks/cost_model.py`` on two cores of a shared x86-64 server.
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
    """Prices of a byte-month and of a CPU second in one currency; only their ratio matters.

    The defaults are list prices of public clouds in US dollars: 0.02 for a GB-month of object storage and 0.04 for the
    hour of a virtual CPU.
    """

    byte_month: float = 0.02 / 1e9
    cpu_sec: float = 0.04 / 3600

    def __post_init__(self) -> None:
        _at_least_zero("Prices.byte_month", self.byte_month)
        if not (self.cpu_sec > 0 and math.isfinite(self.cpu_sec)):
            raise InputError(
                "cpu_sec must be a finite number > 0", where="Prices.cpu_sec", value=self.cpu_sec, allowed="> 0"
            )

    def storage_secs(self, horizon_days: float) -> float:
        """The price of storing one byte over the horizon, in CPU seconds."""
        return self.byte_month * horizon_days / DAYS_A_MONTH / self.cpu_sec


#: The rates that ``benchmarks/cost_model.py`` measured.
MEASURED_RATES = Rates()
#: List prices of public clouds.
LIST_PRICES = Prices()
