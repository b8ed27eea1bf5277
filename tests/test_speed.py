"""No test depends on the speed of the machine: rules for all test files."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.conftest import ROOT
from tests.support.processes import PATIENCE_SECS

#: Waiting calls: how long they may take is given by the keyword ``timeout`` or by their first argument.
_WAITING = {"communicate", "join", "wait", "wait_for", "urlopen", "run", "Barrier", "HTTPConnection", "get", "result"}
_BY_POSITION = {"join", "wait"}


def calls(source: str) -> Iterator[tuple[str, ast.Call]]:
    """Every call in a source text, with the last part of the name of what is called."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
            yield node.func.id if isinstance(node.func, ast.Name) else node.func.attr, node


def keywords(call: ast.Call) -> dict[str | None, ast.expr]:
    return {item.arg: item.value for item in call.keywords}


def test_examples_have_no_deadline() -> None:
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check
    assert settings().print_blob


def test_only_thorough_examples_are_made_smaller() -> None:
    """A failing property of the quick profile is reported at once: shrinking takes minutes where an example takes seconds."""
    assert Phase.shrink not in settings.get_profile("quick").phases
    assert Phase.generate in settings.get_profile("quick").phases
    assert Phase.shrink in settings.get_profile("thorough").phases


def findings(source: str, name_of_file: str) -> Iterator[str]:
    """What in a source text depends on speed, by its lines."""
    for name, call in calls(source):
        given, place = keywords(call), f"{name_of_file}:{call.lineno}"
        if name == "settings" and "deadline" in given:
            yield f"{place}: a deadline is set, which tests/conftest.py does for all"
        if name == "settings" and "suppress_health_check" in given:  # replaces the profile's
            suppressed = ast.unparse(given["suppress_health_check"])
            if suppressed != "list(HealthCheck)" and "too_slow" not in suppressed:
                yield f"{place}: the health check too_slow is switched on"
        if name in _WAITING:
            for limit in (given.get("timeout"), *(call.args[:1] if name in _BY_POSITION else ())):
                value = limit.value if isinstance(limit, ast.Constant) else None
                if isinstance(value, (int, float)) and value < PATIENCE_SECS:
                    yield f"{place}: {ast.unparse(call)} waits less than PATIENCE_SECS of tests/support/processes.py"


def test_no_test_depends_on_speed() -> None:
    """A test's wait that ends in a failure when it runs out is long; one that is meant to run out is no literal."""
    paths = sorted((ROOT / "tests").rglob("*.py"))
    assert len(paths) > 200
    found = [findings(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT))) for path in paths]
    assert [one for many in found for one in many if not one.startswith("tests/conftest.py:")] == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("@settings(max_examples=scaled(3), deadline=200)", "deadline"),
        ("quick = settings(suppress_health_check=[HealthCheck.filter_too_much])", "too_slow"),
        ("process.communicate(timeout=5)", "PATIENCE_SECS"),
        ("done.wait(0.5)", "PATIENCE_SECS"),
    ],
)
def test_the_rules_find_what_they_are_for(line: str, reason: str) -> None:
    (found,) = findings(line + "\ndef test(): ...\n" * line.startswith("@"), "tests/test_it.py")
    assert reason in found
