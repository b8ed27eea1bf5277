"""The packages that Headrace needs on a machine with Beam, pinned to the versions of this one.

Beam's image has Beam and Beam's requirements; its other packages differ from image to image. Pinned are Headrace's own
requirements, and what those require in addition to Beam, so that kernels and file formats are the same as here.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING

from transforms.errors import InputError

if TYPE_CHECKING:
    from packaging.requirements import Requirement

#: The extras of Headrace that workers need; ``beam`` comes with the image.
EXTRAS = ("gcs",)
BEAM = "apache-beam"
#: Platforms of wheels that Dataflow's machines accept.
_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux2014_x86_64")


def pinned_requirements(own: Iterable[str]) -> tuple[str, ...]:
    """``name==version`` of each package that a worker needs, sorted; ``own`` are Headrace's requirements with extras.

    Raises :class:`InputError` with the packages that are not installed here.
    """
    from packaging.requirements import Requirement  # 30 ms, which a worker on one machine does not need
    from packaging.utils import canonicalize_name

    required = [wanted for wanted in map(Requirement, own) if _applies(wanted, ("", *EXTRAS))]
    direct = {canonicalize_name(wanted.name) for wanted in required}
    needed = resolve_closure(required)
    pinned = sorted(needed.keys() - (resolve_closure([Requirement(BEAM)]).keys() - direct))
    absent = [name for name in pinned if not needed[name]]
    if absent:
        raise InputError("packages of remote workers must be installed here, since their versions are pinned",
                         value=", ".join(absent), allowed="the packages of headrace[dataflow]",
                         next_step="pip install 'headrace[dataflow]', or give an image with --sdk_container_image")  # fmt: skip
    return tuple(f"{name}=={needed[name]}" for name in pinned)


def download_wheels(requirements: Path, folder: Path) -> tuple[Path, ...]:
    """Download the wheels of a requirements file into ``folder``, for Dataflow's machines and this Python.

    Raises :class:`InputError` with pip's message.
    """
    abi = f"cp{sys.version_info.major}{sys.version_info.minor}"
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    for_them = [f"--platform={platform}" for platform in _PLATFORMS]
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "download", "--no-deps",
               "--only-binary=:all:", "--implementation=cp", f"--python-version={python}", f"--abi={abi}", "--abi=abi3",
               "--abi=none", *for_them, "--requirement", str(requirements), "--dest", str(folder)]  # fmt: skip
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise InputError("wheels for workers without a public address could not be downloaded",
                         where="pip download", value="\n".join(answer.stderr.strip().splitlines()[-2:])[:500],
                         allowed="a package index that this machine reaches",
                         next_step="give an image with --sdk_container_image; or --requirements_cache=skip if the workers "
                         "reach an index")  # fmt: skip
    return tuple(sorted(folder.glob("*.whl")))


def resolve_closure(wanted: Iterable[Requirement]) -> Mapping[str, str]:
    """``wanted`` and all their requirements: the installed version by canonical name, empty if not installed."""
    from packaging.utils import canonicalize_name

    found: dict[str, str] = {}
    met: set[tuple[str, str]] = set()
    waiting = list(wanted)
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        found.setdefault(name, _version(name))
        for extra in ("", *sorted(requirement.extras)):
            if found[name] and (name, extra) not in met:
                met.add((name, extra))
                waiting += _requirements_of(name, extra)
    return found


def _requirements_of(name: str, extra: str) -> Iterator[Requirement]:
    from packaging.requirements import Requirement

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
