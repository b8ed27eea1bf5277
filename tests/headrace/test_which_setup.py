"""docs/which-setup.md names options and figures that there are."""

from __future__ import annotations

import re
from dataclasses import fields

from headrace.cli.options.option_groups import option_fields
from headrace.cli.train_options.training import TrainOptions
from headrace.screens.training import TrainedScreen
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "which-setup.md").read_text(encoding="utf-8")


def test_the_flags_of_the_page_are_those_of_the_command() -> None:
    setups = PAGE.partition("## The table")[2].partition("## Was it worth it?")[0]
    known = {one.flag for one in option_fields(TrainOptions)}
    found = set(re.findall(r"--[a-z][a-z-]*", setups))
    assert {"--hosts", "--servers", "--plan", "--towers", "--follow", "--tpu"} <= found <= known


def test_the_figures_of_the_page_are_on_the_final_screen() -> None:
    rows = re.findall(r"^\| .*", PAGE.partition("## Was it worth it?")[2], re.MULTILINE)[1:]
    keys = {key for row in rows for key in re.findall(r"`([a-z_]+)`", row.split(" | ")[2])}
    assert {"staleness", "placement", "served", "kept", "hashed"} <= keys
    assert keys <= {one.name for one in fields(TrainedScreen)}


def test_the_readme_and_the_map_lead_to_the_page() -> None:
    for name, link in (("README.md", "docs/which-setup.md"), ("docs/architecture.md", "which-setup.md")):
        assert f"({link})" in (ROOT / name).read_text(encoding="utf-8")
