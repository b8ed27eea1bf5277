"""The manual, the dashboard and the alerts name metrics that the code has, and the manual names all of them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess

import pytest
import yaml

from headrace.metrics.catalogue import MEANING, all_metrics, exposed_names, tables_text
from tests.conftest import ROOT
from transforms.metrics.declarations import ROLES

PAGE, CAPACITY = ROOT / "docs" / "metrics.md", ROOT / "docs" / "capacity.md"
EXAMPLES = ROOT / "examples" / "monitoring"
_NAME = re.compile(r"\bheadrace_[a-z0-9_]+\b")
_TABLES = re.compile(r"(<!-- metrics -->\n).*(<!-- /metrics -->\n)", re.DOTALL)


def test_the_page_has_every_metric():
    text = PAGE.read_text(encoding="utf-8")
    written = _TABLES.sub(lambda found: f"{found[1]}\n{tables_text()}\n{found[2]}", text)
    if os.environ.get("HEADRACE_WRITE_GOLDENS"):
        PAGE.write_text(written, encoding="utf-8")
    assert written == PAGE.read_text(encoding="utf-8"), "HEADRACE_WRITE_GOLDENS=1 pytest tests/headrace/metrics"


def test_each_role_has_metrics_and_a_meaning():
    assert set(all_metrics()) == set(MEANING) == set(ROLES)
    assert all(all_metrics().values())


@pytest.mark.parametrize("file", ["alerts.yml", "dashboard.json"])
def test_a_name_in_an_example_is_one_of_a_metric(file):
    names = set(_NAME.findall((EXAMPLES / file).read_text(encoding="utf-8")))
    assert names - exposed_names() == set()
    assert len(names) > 10


def test_a_name_in_the_manual_is_one_of_a_metric():
    for page in (PAGE, CAPACITY):
        names = set(_NAME.findall(page.read_text(encoding="utf-8").replace("headrace_<role>", "")))
        roles = {f"headrace_{role}_" for role in ROLES}
        assert names - exposed_names() - roles == set(), page


def test_the_page_lists_each_alert():
    rules = yaml.safe_load((EXAMPLES / "alerts.yml").read_text(encoding="utf-8"))
    alerts = [rule["alert"] for group in rules["groups"] for rule in group["rules"]]
    assert re.findall(r"^\| `(Headrace\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE) == alerts


def test_panels_do_not_overlap():
    panels = json.loads((EXAMPLES / "dashboard.json").read_text(encoding="utf-8"))["panels"]
    assert len({one["id"] for one in panels}) == len(panels)
    taken = set()
    for one in panels:
        place = one["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}  # fmt: skip
        assert not cells & taken, one["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


@pytest.mark.medium
@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Prometheus")
@pytest.mark.parametrize(("what", "file"), [("rules", "alerts.yml"), ("config", "prometheus.yml")])
def test_prometheus_accepts_the_examples(what, file):
    found = subprocess.run(["promtool", "check", what, str(EXAMPLES / file)], capture_output=True, text=True, check=False)  # fmt: skip
    assert found.returncode == 0, found.stderr
