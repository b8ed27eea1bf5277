from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from pipelines.staging.own_wheel import own_metadata, source_folder
from pipelines.staging.requirements import download_wheels, pinned_requirements, resolve_closure
from transforms.errors import InputError


def install(folder: Path, name: str, *requires: str) -> None:
    """A package, as far as its metadata."""
    place = folder / f"{name.replace('-', '_')}-1.5.dist-info"
    place.mkdir(parents=True)
    lines = [f"Name: {name}", "Version: 1.5", *(f"Requires-Dist: {one}" for one in requires)]
    (place / "METADATA").write_text("Metadata-Version: 2.1\n" + "\n".join(lines) + "\n")


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages in front of those installed; Beam is one of them."""
    monkeypatch.syspath_prepend(str(tmp_path))
    install(tmp_path, "apache-beam", "pinned-by-us", "beams-own", 'ours-alone; extra == "gcp"')
    for name in ("pinned-by-us", "beams-own", "ours-alone"):
        install(tmp_path, name)
    install(tmp_path, "cloud", "beams-own")
    return tmp_path


def test_what_beam_does_not_bring_is_pinned_and_what_we_ask_for_ourselves(packages: Path) -> None:
    install(packages, "Direct.Need", "ours-alone", "beams-own", 'absent; python_version < "3"')
    own = ["direct_need>=1", "pinned-by-us", 'cloud; extra == "gcs"', 'never-here; extra == "train"']
    assert pinned_requirements(own) == ("cloud==1.5", "direct-need==1.5", "ours-alone==1.5", "pinned-by-us==1.5")


def test_extras_are_followed_and_circles_end(packages: Path) -> None:
    install(packages, "circle", 'round[more]; extra == "on"')
    install(packages, "round", "circle", 'ours-alone; extra == "more"')
    assert resolve_closure([Requirement("circle")]) == {"circle": "1.5"}
    assert set(resolve_closure([Requirement("circle[on]")])) == {"circle", "round", "ours-alone"}


def test_a_package_that_is_not_here_has_no_version_to_pin(packages: Path) -> None:
    with pytest.raises(InputError, match="must be installed here") as caught:
        pinned_requirements(["pinned-by-us", "nowhere-at-all>=2"])
    assert caught.value.value == "nowhere-at-all"
    assert "headrace[dataflow]" in caught.value.next_step


def test_the_pins_are_what_runs_here() -> None:
    pins = dict(pin.split("==") for pin in pinned_requirements(own_metadata(source_folder()).requirements))
    assert {name: version(name) for name in pins} == pins
    assert {"numba", "llvmlite", "pyarrow", "numpy", "google-cloud-storage", "alembic"} <= pins.keys()
    assert not {"apache-beam", "charset-normalizer", "pytest", "tensorflow", "psycopg"} & pins.keys()


@pytest.mark.medium
def test_packages_that_cannot_be_fetched_are_one_error(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("numba===no.such.version\n")
    with pytest.raises(InputError, match="could not be downloaded") as caught:
        download_wheels(tmp_path / "requirements.txt", tmp_path)
    assert "no.such.version" in str(caught.value.value)
    assert "--sdk_container_image" in caught.value.next_step
