"""``make release``: a rehearsal, which publishes nothing. ``python -m tests.release .release dist``

1. The version of setup.py is that of the changelog. 2. The source package and, from it, the wheel are built. 3. They are put into an index on this
machine, from which a fresh environment installs ``headrace[beam,train]`` as a user does, and runs the tutorial ``docs/your-own-log.md``.
4. The bill of materials of that environment is written (CycloneDX). 5. The digests of all files are signed, and verified.
The commands that publish are printed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.conftest import ROOT
from tests.release.artifacts import check_version, commit_secs, new_key, sign, verify, write_digests, write_index
from tests.support.installed_wheel import built
from tests.support.own_log_page import chapter
from tests.support.own_logs import write_coupons
from tests.support.served_folder import served_folder

KEY_VARIABLE = "RELEASE_KEY"
_EXTRAS = "beam,train"
_PUBLISH = """\
next, for the release itself:
  the heading of CHANGELOG.md gets its date: ## {version} (YYYY-MM-DD)
  git tag --sign v{version} && git push origin v{version}
  {variable}=path/to/key make release
  twine upload {folder}/*.whl {folder}/*.tar.gz
  the other files of {folder} go to the page of the release
"""


def build(folder: Path) -> list[Path]:
    """The source package and the wheel of this checkout, in a folder."""
    os.environ["SOURCE_DATE_EPOCH"] = commit_secs()
    with tempfile.TemporaryDirectory(prefix="headrace-release-") as place:
        packed = built(Path(place)).parent
        return [Path(shutil.copy(one, folder / one.name)) for one in sorted(packed.iterdir())]


def install(environment: Path, files: list[Path], version: str) -> float:
    """Install the release from an index on this machine; the seconds that it took."""
    with tempfile.TemporaryDirectory(prefix="headrace-index-") as place:
        write_index(Path(place), files)
        with served_folder(Path(place)) as address:
            began = time.monotonic()
            subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
            pip = [
                str(environment / "bin" / "python"),
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
            ]
            subprocess.run(
                [*pip, "--extra-index-url", f"{address}/simple", f"headrace[{_EXTRAS}]=={version}"], check=True
            )
            return time.monotonic() - began


def run_tutorial(environment: Path, folder: Path) -> float:
    """Run the first chapter of the tutorial with the installed commands; the seconds that it took."""
    first = chapter("CSV and TSV")
    write_coupons(folder / "coupons.csv")
    (folder / "coupons.py").write_text(first.model, encoding="utf-8")
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "HEADRACE_HOME")}
    began = time.monotonic()
    for program, *arguments in first.commands:
        done = subprocess.run(
            [str(environment / "bin" / program), *arguments],
            cwd=folder,
            env=inherited,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{program} {' '.join(arguments)}: status {done.returncode}\n{done.stdout}\n{done.stderr}")
        print(f"  {program} {' '.join(arguments)}")
    return time.monotonic() - began


def main() -> None:
    """Rehearse a release."""
    tools, folder = Path(sys.argv[1]), Path(sys.argv[2])
    version = check_version(
        (ROOT / "setup.py").read_text(encoding="utf-8"), (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    )
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    files = build(folder)
    print(f"built {', '.join(f'{one.name} ({one.stat().st_size / 1e6:.1f} MB)' for one in files)}")
    with tempfile.TemporaryDirectory(prefix="headrace-first-hour-") as place:
        environment, work = Path(place) / "environment", Path(place) / "work"
        work.mkdir()
        secs = install(environment, files, version.name)
        size = sum(one.stat().st_size for one in environment.rglob("*") if one.is_file() and not one.is_symlink())
        print(f"installed headrace[{_EXTRAS}] from an index in {secs:.0f} s: {size / 1e6:.0f} MB")
        print(f"the tutorial ran in {run_tutorial(environment, work):.0f} s")
        materials = folder / f"headrace-{version.name}.cdx.json"
        subprocess.run([str(tools / "bin" / "cyclonedx-py"), "environment", str(environment / "bin" / "python"), "--output-reproducible", "--of", "JSON",
                        "-o", str(materials)], check=True, capture_output=True)  # fmt: skip
        print(f"wrote the bill of materials, {materials.name}")
    digests = write_digests(folder)
    with tempfile.TemporaryDirectory(prefix="headrace-key-") as place:
        given = os.environ.get(KEY_VARIABLE, "")
        key = Path(given) if given else new_key(Path(place))
        sign(digests, key)
        verify(digests, key.with_name(f"{key.name}.pub"))
    print(
        f"signed {digests.name} with {'the given key' if given else f'a key of this rehearsal; {KEY_VARIABLE} names that of a release'}, and verified it"
    )
    if not version.date:
        print(f"version {version.name} is unreleased")
    print(_PUBLISH.format(version=version.name, folder=folder, variable=KEY_VARIABLE), end="")


if __name__ == "__main__":
    main()
