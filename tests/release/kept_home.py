"""Makes the home that tests of upgrades keep, as a release has left it: ``python -m tests.release.kept_home``, once per release.

It has a catalog, a log that was imported, memos, a trained run with its checkpoints, and an exported chain of weights, with the figures that a later
release must find again. Commands alone make it, so what they write is in it. The homes of earlier releases stay.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.conftest import ROOT
from tests.release.artifacts import newest_version
from tests.support.own_logs import write_coupons
from transforms.child_process import child_environment, module_command

HOMES = ROOT / "tests" / "release" / "homes"
FIGURES = "figures.json"
#: The partitions that are trained, and the one after them.
END, TEST_END = "2026-03-04", "2026-03-05"
ROWS = 600
MODEL = """\
import headrace as hr

model = hr.Model("coupons", client="shop", label="bought", table="coupons")
model.input("coupon", hr.text("coupon").hash_buckets(50))
model.input("genre", hr.text("genre").lower().hash_buckets(20))
model.input("price", hr.int64("price").cast("float32").log1p())
"""
OPTIONS: Mapping[str, Any] = {"batch_rows": 64, "dim": 2, "bottom_mlp": [2], "top_mlp": [2], "linear": True, "passes": 1, "embedding_learning_rate": 0.05,
                              "dense_learning_rate": 0.003, "linear_learning_rate": 0.1, "initial_bias": 0.0, "dense_scaling": {}, "statistics_share": 1.0}  # fmt: skip
_MOMENT = (2026, 1, 1, 0, 0, 0)
_LEFT_OUT = ("lock", "logs", "coupons.csv")


def command(folder: Path, *words: str) -> Any:
    """The document of a command in a folder, whose home is there. Raises :class:`AssertionError` for one that fails."""
    line = module_command("headrace", *words, "--json")
    done = subprocess.run(
        line,
        cwd=folder,
        env={**child_environment(), "HEADRACE_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise AssertionError(f"{words}: status {done.returncode}\n{done.stderr[-4000:]}")
    return json.loads(done.stdout)


def figures(folder: Path) -> dict[str, Any]:
    """What a release must find as it was: the model's inputs, and the scores of the newest checkpoint."""
    command(folder, "model", "read", "coupons", "--output", "inputs.parquet")
    table = pq.read_table(folder / "inputs.parquet")
    (folder / "inputs.parquet").unlink()
    scored = command(folder, "evaluate", "coupons", "--start", END, "--end", TEST_END)
    return {"inputs": table.slice(0, 40).to_pydict(), "rows": table.num_rows,
            **{name: scored[name] for name in ("events", "log_loss", "auc", "checkpoint")}}  # fmt: skip


def make(folder: Path) -> None:
    """Fill a folder by commands."""
    write_coupons(folder / "coupons.csv", rows=ROWS)
    (folder / "coupons.py").write_text(MODEL, encoding="utf-8")
    command(folder, "table", "infer", "coupons.csv", "--output", "coupons.json")
    command(folder, "table", "import", "coupons", "coupons.csv", "--schema", "coupons.json")
    command(folder, "model", "submit", "coupons.py")
    command(folder, "work", "--until-idle")
    command(folder, "train", "coupons", "--end", END, "--config", json.dumps(OPTIONS))
    command(folder, "export", "full", "coupons", "--output", "chain")
    (folder / FIGURES).write_text(json.dumps(figures(folder), indent=1), encoding="utf-8")


def keep(folder: Path, file: Path) -> None:
    """Write what is in a folder as an archive, equal for equal files."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(one for one in folder.rglob("*") if one.is_file()):
            inside = path.relative_to(folder)
            if not set(inside.parts) & set(_LEFT_OUT):
                archive.writestr(zipfile.ZipInfo(str(inside), _MOMENT), path.read_bytes(), zipfile.ZIP_DEFLATED)


def main() -> None:
    """Keep a home of this release."""
    version = newest_version((ROOT / "CHANGELOG.md").read_text(encoding="utf-8")).name
    HOMES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="headrace-kept-") as name:
        make(Path(name))
        keep(Path(name), HOMES / f"{version}.zip")
    print(f"{version}.zip: {(HOMES / f'{version}.zip').stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
