"""Scrapes of metrics, as Prometheus sees them."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.support.processes import PATIENCE_SECS

#: Every figure by its name and labels.
Figures = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(address: str) -> Figures:
    """The figures of the process that serves at an address."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=PATIENCE_SECS) as answer:
        text = answer.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def target(file: Path) -> str:
    """The address in a file of targets."""
    (one,) = json.loads(file.read_text(encoding="utf-8"))
    return str(one["targets"][0])


def plain(figures: Figures) -> dict[str, float]:
    """Those without labels, by name."""
    return {name: value for (name, labels), value in figures.items() if not labels}
