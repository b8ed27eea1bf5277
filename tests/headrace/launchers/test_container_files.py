"""The container files: checked by hadolint, their requirements resolved here, and commands run with the packages of their image alone. No image is built."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.headrace.conftest import UNTRIED
from tests.headrace.launchers.test_manifests import pod, rendered
from tests.headrace.web.pages import Browser
from tests.support.image_packages import absent_modules, command_in_image
from tests.support.processes import PATIENCE_SECS, end, start, wait_until
from tests.warehouse.scenes import computed_warehouse

ROOT = Path(__file__).parents[3]
FILES = {role: ROOT / "docker" / f"{role}.Dockerfile" for role in ("controller", "reader", "host", "worker", "page")}
#: The roles whose pods a launcher writes; manifests of the others are in ``examples/kubernetes``.
LAUNCHED = ("controller", "reader", "host")
_CONTINUED = re.compile(r"\\\n")


def steps(role: str) -> list[tuple[str, str]]:
    """The instructions of a container file, with their arguments."""
    text = _CONTINUED.sub(" ", FILES[role].read_text())
    lines = (line.strip() for line in text.splitlines())
    return [tuple(line.split(None, 1)) for line in lines if line and not line.startswith("#")]  # type: ignore[misc]


def test_there_is_a_file_for_each_role() -> None:
    assert {path.stem for path in (ROOT / "docker").glob("*.Dockerfile")} == set(FILES)


@pytest.mark.parametrize("role", FILES)
def test_hadolint_finds_nothing(role: str) -> None:
    program = shutil.which("hadolint") or str(Path(sys.executable).with_name("hadolint"))
    if not Path(program).exists():
        pytest.skip("no hadolint")
    done = subprocess.run([program, str(FILES[role])], capture_output=True, text=True)
    assert done.stdout == ""


@pytest.mark.parametrize("role", FILES)
def test_an_image_is_built_of_the_repository_and_runs_the_command(role: str) -> None:
    found = steps(role)
    bases = [arguments for name, arguments in found if name == "FROM"]
    assert bases[-1] == "python:3.12-slim-bookworm"
    assert set(bases[:-1]) <= {"python:3.12-slim-bookworm AS build"}
    assert found[-1] == ("ENTRYPOINT", '["headrace"]')
    assert ("COPY", ". .") in found
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert all((ROOT / name).exists() for name in kept)
    packages = {"transforms", "warehouse", "pipelines", "trainer", "headrace"}
    assert kept >= packages | {"setup.py", "pyproject.toml", "requirements.txt", "README.md"}


def test_images_and_pods_agree_on_their_users(capsys: pytest.CaptureFixture[str]) -> None:
    """The user of an image may write the folders that its pod mounts."""
    documents = rendered(capsys)
    for role in LAUNCHED:
        context = pod(documents, role).get("securityContext")
        users = [arguments for name, arguments in steps(role) if name == "USER"]
        if role == "host":
            assert (context, users) == (None, [])
        else:
            assert context == {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000}
            assert users == ["1000:1000"]
            assert any("--uid 1000" in arguments for name, arguments in steps(role) if name == "RUN")


@pytest.mark.slow
@pytest.mark.parametrize("role", FILES)
def test_the_requirements_of_an_image_resolve_to_the_pinned_set(role: str) -> None:
    """In a dry run, without a registry: what an image installs is what this environment was tested with."""
    (command,) = (one for name, one in steps(role) if name == "RUN" and "--constraint" in one and "DEVICE" not in one)
    words = [one.strip('"') for one in command.split()]
    assert words[:4] == ["python", "-m", "pip", "install"]
    dry = ["--dry-run", "--no-index", "--no-build-isolation", "--no-cache-dir", "--quiet"]
    done = subprocess.run([sys.executable, *words[1:4], *dry, *words[4:]], cwd=ROOT, capture_output=True, text=True,
                          timeout=PATIENCE_SECS)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Would install headrace" in done.stdout or done.stdout.strip() == ""


def test_the_device_of_a_host_is_a_known_one() -> None:
    (command,) = (one for name, one in steps("host") if name == "RUN" and "DEVICE" in one)
    for device, status, said in (("cpu", 0, ""), ("ipu", 2, "DEVICE must be cpu, gpu or tpu, got ipu")):
        done = subprocess.run(["sh", "-c", command], env={"DEVICE": device, "PATH": "/usr/bin:/bin"}, capture_output=True,
                              text=True)  # fmt: skip
        assert (done.returncode, done.stderr.strip()) == (status, said)


def extras(role: str) -> list[str]:
    """The extras that an image installs."""
    (found,) = (
        match[1] for name, one in steps(role) if name == "RUN" and (match := re.search(r'"\.\[([a-z,]+)\]"', one))
    )
    return found.split(",")


@pytest.fixture(scope="module")
def computed_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a model whose memos are ready."""
    folder = tmp_path_factory.mktemp("images")
    with computed_warehouse(folder):
        return folder / "home"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("role", "words"),
    [
        ("worker", ("work", "--until-idle")),
        ("worker", ("gc", "--yes")),
        ("page", ("init",)),
        ("reader", ("role", "reader", "--help")),
        ("controller", ("train", "ctr", "--config", json.dumps(UNTRIED))),
        ("host", ("train", "ctr", "--config", json.dumps(UNTRIED))),
    ],
)
def test_a_command_needs_only_the_packages_of_its_image(
    role: str, words: tuple[str, ...], computed_home: Path, tmp_path: Path
) -> None:
    """No module of another package is found."""
    run_dir = ("--run-dir", str(tmp_path / "run")) if words[0] == "train" else ()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HEADRACE_HOME": str(computed_home)}
    done = subprocess.run(command_in_image(tmp_path, extras(role), *words, *run_dir), env=environment, capture_output=True,
                          text=True, timeout=PATIENCE_SECS)  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_servers_need_only_the_packages_of_the_image_of_readers(tmp_path: Path) -> None:
    """A parameter server, an embedding worker before it, and the command that shows both."""
    processes, files = {}, {name: tmp_path / f"{name}.address" for name in ("serve", "worker")}
    environment = {"PYTHONPATH": str(ROOT)}
    try:
        for name, file in files.items():
            servers = ("--servers", files["serve"].read_text().strip()) if name == "worker" else ()
            words = ("ps", name, "--no-token", "--address-file", str(file), *servers)
            command = command_in_image(tmp_path, extras("reader"), *words)
            processes[name] = start(command, tmp_path / f"{name}.txt", environment)
            wait_until(lambda file=file: file.exists() and bool(file.read_text()), f"{name} listens", processes)  # type: ignore[misc]
        addresses = [file.read_text().strip() for file in files.values()]
        shown = command_in_image(tmp_path, extras("reader"), "ps", "status", *addresses)
        done = subprocess.run(shown, env={**os.environ, **environment}, capture_output=True, text=True, timeout=PATIENCE_SECS)  # fmt: skip
        assert done.returncode == 0, done.stderr
    finally:
        for one in processes.values():
            end(one)


@pytest.mark.slow
def test_the_page_needs_only_the_packages_of_its_image(computed_home: Path, tmp_path: Path) -> None:
    words = command_in_image(tmp_path, extras("page"), "ui", "--port", "0", "--home", str(computed_home))
    log = tmp_path / "ui.txt"
    page = start(words, log, {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"})
    try:
        wait_until(lambda: "Ctrl-C ends them" in log.read_text(), "the pages are served", {"ui": page})
        address = next(word for word in log.read_text().split() if word.startswith("http://"))
        assert Browser(address).enter().get("/graphs").status == 200
    finally:
        end(page)


@pytest.mark.medium
def test_the_packages_of_an_image_are_fewer() -> None:
    """What is refused above is refused: the page without Beam, readers without TensorFlow, hosts without a catalog in PostgreSQL."""
    lacking = {
        "worker": "tensorflow",
        "page": "apache_beam",
        "reader": "tensorflow",
        "host": "psycopg",
        "controller": "apache_beam",
    }
    for role, module in lacking.items():
        absent = absent_modules(extras(role))
        assert module in absent, role
        assert not {"numpy", "pyarrow", "sqlalchemy", "headrace"} & set(absent), role
