"""What contributors are referred to is there: files, make targets, tools, commits."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT

_FILE = re.compile(r"`((?:[\w.-]+/)+[\w.*-]*|[\w-]+\.(?:md|toml|py|txt))`")
_TARGET = re.compile(r"`make ([a-z][a-z-]*)")


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize(
    "page", ["CONTRIBUTING.md", "SECURITY.md", "tests/README.md", ".github/pull_request_template.md"]
)
def test_files_and_targets_that_a_page_names_are_there(page: str) -> None:
    named = set(_FILE.findall(text_of(page)))
    wanted = {one for one in named if not one.startswith((".venv", "application/"))}
    assert [one for one in sorted(wanted) if not (ROOT / one).exists() and not (ROOT / page).parent.joinpath(one).exists()] == []  # fmt: skip
    assert set(_TARGET.findall(text_of(page))) <= targets()


def workflow_commands(workflow: Any) -> Iterator[str]:
    """The commands of a workflow's steps, with the values of each matrix."""
    for job in workflow["jobs"].values():
        for step in job["steps"]:
            if "run" not in step:
                continue
            if "${{ matrix.target }}" in step["run"]:
                for target in job["strategy"]["matrix"]["target"]:
                    yield step["run"].replace("${{ matrix.target }}", target)
            else:
                yield step["run"]


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.name)
def test_workflows_call_targets_of_make(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    found = list(workflow_commands(workflow))
    assert found
    for command in found:
        program, target = command.split()
        assert program == "make"
        assert target in targets()


def test_hooks_are_tools_of_the_environment() -> None:
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    assert local["repo"] == "local"
    checks = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\ncheck:")[2]
    for hook in local["hooks"]:
        assert hook["language"] == "system"
        tool = hook["entry"].removeprefix(".venv/bin/").removesuffix(" --force-exclude")
        assert f"$(BIN)/{tool}" in checks


def test_the_issue_forms_have_what_forms_need() -> None:
    for path in sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")):
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        if path.name == "config.yml":
            continue
        assert {"name", "description", "body"} <= form.keys()
        fields = [one for one in form["body"] if one["type"] != "markdown"]
        assert len({one["id"] for one in fields}) == len(fields)
        assert any(one.get("validations", {}).get("required") for one in fields)


def test_recipes_name_files_that_their_commits_touched() -> None:
    """Of each recipe, at least half of the files: others moved since, or the commit had no need of them."""
    text = text_of("CONTRIBUTING.md")
    recipes = re.findall(r"^As \"(.+?)\" \(([0-9a-f]{9})\):\n(.*?)(?=^###|\Z)", text, re.MULTILINE | re.DOTALL)
    assert len(recipes) == 6
    for subject, commit, body in recipes:
        shown = subprocess.run(
            ["git", "show", "--name-only", "--format=%s", commit], cwd=ROOT, capture_output=True, text=True
        )
        if shown.returncode:
            pytest.skip("the history of the repository is not here")
        first, *touched = shown.stdout.split("\n")
        assert first == subject
        listed = set(_FILE.findall(body.strip("\n").partition("\n\n")[0]))
        assert len(listed & set(touched)) >= len(listed) / 2, (subject, listed - set(touched))


def test_decision_records_are_numbered_and_listed() -> None:
    records = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
    index, manual = text_of("docs/decisions/index.md"), (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert [int(path.name[:4]) for path in records] == list(range(1, len(records) + 1))
    for path in records:
        text = path.read_text(encoding="utf-8")
        assert text.startswith(f"# {path.name[:4]}: ")
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences", "Measured"]
        assert "\nStatus: " in text
        assert f"]({path.name})" in index
        assert f"decisions/{path.name}" in manual
