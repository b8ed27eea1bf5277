"""What benchmarks of hosts that train dense weights together share: their options, and how they print times."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

from benchmarks.support.delayed_mailbox import Link


def link_of(text: str) -> Link:
    """The link of an option, ``DELAY_MS:GBIT``."""
    delay, rate = text.split(":")
    return Link(float(delay) / 1e3, float(rate) * 1e9 / 8)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of hosts, rounds, steps and links."""
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--links", type=link_of, nargs="+", default=[Link(), Link(1e-3, 10e9 / 8)])


def slowest_of(by_host: Sequence[Sequence[float]]) -> list[float]:
    """The seconds of the slowest host in each round; ``by_host``: of each host, those of each round."""
    return [max(secs) for secs in zip(*by_host, strict=True)]


def ms_text(secs: Sequence[float]) -> str:
    """The median of some seconds, the least and the most of them."""
    return f"{statistics.median(secs) * 1e3:.1f} ms ({min(secs) * 1e3:.1f} to {max(secs) * 1e3:.1f})"
