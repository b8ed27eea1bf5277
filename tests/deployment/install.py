"""Installs Helm, Prometheus with promtool, and the parser of compose files in ``.deployment/``: ``python -m tests.deployment.install``.

Go builds them from their released modules. Prometheus has the ways to find targets that
the compose file uses, and no others: the libraries of all clouds would take gigabytes and an hour.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".deployment"
PROGRAMS = FOLDER / "bin"
_READY = FOLDER / "ready.json"

#: The packages of each call of ``go install``, and its build tags.
PINNED = (
    (("helm.sh/helm/v3/cmd/helm@v3.22.0",), ""),
    (("github.com/compose-spec/compose-go/v2/cmd@v2.16.2",), ""),
    (
        (
            "github.com/prometheus/prometheus/cmd/promtool@v0.316.0",
            "github.com/prometheus/prometheus/cmd/prometheus@v0.316.0",
        ),
        "remove_all_sd,enable_dns_sd",
    ),
)
#: The parser of compose files, which Docker Compose uses too: its package is named ``cmd``.
COMPOSE_PARSER = PROGRAMS / "cmd"


def is_ready() -> bool:
    """Whether the programs are there in the pinned versions."""
    return _READY.is_file() and json.loads(_READY.read_text(encoding="utf-8")) == json.loads(json.dumps(PINNED))


def install() -> None:
    """Build what is missing. Raises :class:`subprocess.CalledProcessError`, and :class:`FileNotFoundError` without Go."""
    if is_ready():
        return
    shutil.rmtree(FOLDER, ignore_errors=True)
    PROGRAMS.mkdir(parents=True)
    for packages, tags in PINNED:
        environment = {**os.environ, "GOBIN": str(PROGRAMS), "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod"}
        subprocess.run(["go", "install", "-tags", tags, *packages], env=environment, check=True, stderr=subprocess.DEVNULL)  # fmt: skip
    _READY.write_text(json.dumps(PINNED), encoding="utf-8")


if __name__ == "__main__":
    try:
        install()
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        sys.exit(f"the programs of deployments are not installed: {error}")
