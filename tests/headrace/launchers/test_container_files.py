"""The container files: checked by hadolint, and their requirements resolved in this environment. No image is built here."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.headrace.launchers.test_manifests import pod, rendered
from tests.support.processes import PATIENCE_SECS

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
