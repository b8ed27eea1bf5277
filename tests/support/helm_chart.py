"""The chart of ``deploy/helm/headrace``, and what Helm has rendered of it: the files of ``tests/data/helm``.

Each case has its values and the objects that Helm makes of them. ``make test-deployment`` compares them with what Helm renders, and writes them with
``HEADRACE_WRITE_GOLDENS=1``. The first line of a rendered file has a digest of the chart, so that tests without Helm notice a chart that has changed since.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "headrace"
DATA = ROOT / "tests" / "data" / "helm"
CASES = tuple(sorted(path.name.removesuffix(".values.yaml") for path in DATA.glob("*.values.yaml")))
#: Of the release in the rendered files.
RELEASE, NAMESPACE = "ads", "features"


def chart_digest() -> str:
    """A digest of the names and bytes of the chart's files."""
    digest = hashlib.sha256()
    for path in sorted(path for path in CHART.rglob("*") if path.is_file()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(CHART).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def head() -> str:
    """The first line of a rendered file."""
    return f"# Rendered by Helm of the chart with the digest {chart_digest()}\n"


def values_file(case: str) -> Path:
    """The values of a case."""
    return DATA / f"{case}.values.yaml"


def rendered_file(case: str) -> Path:
    """What Helm has rendered of them."""
    return DATA / f"{case}.yaml"


def rendered_objects(case: str) -> list[dict[str, Any]]:
    """The objects of a case."""
    return [one for one in yaml.safe_load_all(rendered_file(case).read_text(encoding="utf-8")) if one is not None]


def values(case: str = "") -> dict[str, Any]:
    """The values of a case, or the chart's defaults."""
    path = values_file(case) if case else CHART / "values.yaml"
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found
