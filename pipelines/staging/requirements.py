"""What a machine that runs Beam needs besides, in order to run Headrace: pinned to the versions that run here.

Beam's image brings Beam and what Beam cannot do without; what it has besides differs from image to image. Pinned on top
are the packages that Headrace itself asks for, Beam's or not, and what those bring that Beam does not: then kernels and
file formats are there what they are here, and an installation needs nothing but the image and the pins.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from transforms.errors import InputError

#: The extras of Headrace that workers need; ``beam`` comes with the image.
EXTRAS = ("gcs",)
BEAM = Requirement("apache-beam")
#: What Dataflow's machines run: wheels for any of these will do.
_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux2014_x86_64")


def pinned_requirements(own: Iterable[str]) -> tuple[str, ...]:
    """``name==version`` of each package that a worker needs, by name; ``own`` is what Headrace asks for, extras included.

    Raises :class:`InputError`, naming the package, when one is not installed here.
    """
    asked = [wanted for wanted in map(Requirement, own) if _applies(wanted, ("", *EXTRAS))]
    direct = {canonicalize_name(wanted.name) for wanted in asked}
    needed = resolve_closure(asked)
    pinned = sorted(needed.keys() - (resolve_closure([BEAM]).keys() - direct))
    absent = [name for name in pinned if not needed[name]]
    if absent:
        raise InputError("packages that remote workers need are not installed here, so their versions are not known",
                         value=", ".join(absent), allowed="what headrace[dataflow] brings",
                         next_step="pip install 'headrace[dataflow]', or give an image with --sdk_container_image")  # fmt: skip
    return tuple(f"{name}=={needed[name]}" for name in pinned)


def download_wheels(requirements: Path, folder: Path) -> tuple[Path, ...]:
    """Download the wheels of a requirements file into ``folder``, for Dataflow's machines and this Python.

    Raises :class:`InputError` with what pip says.
    """
    abi = f"cp{sys.version_info.major}{sys.version_info.minor}"
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    for_them = [f"--platform={platform}" for platform in _PLATFORMS]
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "download", "--no-deps",
               "--only-binary=:all:", "--implementation=cp", f"--python-version={python}", f"--abi={abi}", "--abi=abi3",
               "--abi=none", *for_them, "--requirement", str(requirements), "--dest", str(folder)]  # fmt: skip
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise InputError("the packages that workers without a public address need cannot be fetched",
                         where="pip download", value="\n".join(answer.stderr.strip().splitlines()[-2:])[:500],
                         allowed="a package index that this machine reaches",
                         next_step="give an image with --sdk_container_image; or --requirements_cache=skip if the workers "
                         "reach an index")  # fmt: skip
    return tuple(sorted(folder.glob("*.whl")))


def resolve_closure(wanted: Iterable[Requirement]) -> Mapping[str, str]:
    """``wanted`` and everything they ask for: the installed version by canonical name, empty where there is none."""
    found: dict[str, str] = {}
    met: set[tuple[str, str]] = set()
    waiting = list(wanted)
    while waiting:
        asked = waiting.pop()
        name = canonicalize_name(asked.name)
        found.setdefault(name, _version(name))
        for extra in ("", *sorted(asked.extras)):
            if found[name] and (name, extra) not in met:
                met.add((name, extra))
                waiting += _asked_by(name, extra)
    return found


def _asked_by(name: str, extra: str) -> Iterator[Requirement]:
    for text in distribution(name).requires or ():
        wanted = Requirement(text)
        if _applies(wanted, (extra,)):
            yield wanted


def _applies(wanted: Requirement, extras: Iterable[str]) -> bool:
    return wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in extras)


def _version(name: str) -> str:
    try:
        return distribution(name).version
    except PackageNotFoundError:
        return ""
