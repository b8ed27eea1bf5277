from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.main import run
from tests.headrace.web.browsers import CHROMIUM
from tests.headrace.web.pages import Browser
from tests.support.processes import PATIENCE_SECS
from tests.trainer.synthetic import Synthetic, config


@pytest.fixture(scope="session")
def run_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with two trained runs, and the folder of one without a commit. A test that changes it takes a copy."""
    pytest.importorskip("tensorflow")
    from trainer.run.loop import train

    home = tmp_path_factory.mktemp("run_home") / "home"
    run(["init", "--home", str(home)])
    for name, hours, options in (("ctr-v1", 3, {}), ("ctr-v2", 4, {"dense_learning_rate": 0.01})):
        data = Synthetic(hours)
        given = config(home / "runs" / name, batch_rows=32, **options)
        train(data.solution, data.read, given, read_labels=data.read_labels)
    (home / "runs" / "empty-v1").mkdir()
    return home


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Chromium, without a page."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=PATIENCE_SECS * 1000)
        yield browser
        browser.close()


@pytest.fixture
def browser(pages: Browser) -> Browser:
    """A browser that has entered the ``pages`` of its module."""
    return Browser(pages.address).enter()


@pytest.fixture
def call(home: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """The JSON of a command on the ``home`` of a module."""

    def of(*words: object) -> Any:
        capsys.readouterr()
        assert run([*map(str, words), "--home", str(home), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return of
