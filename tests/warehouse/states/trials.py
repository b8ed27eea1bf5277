"""Damaged files of states: manifests whose digest is right all the same, and files that their manifest names."""

from __future__ import annotations

import copy
import hashlib
import json
import random
import shutil
import tempfile
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from tests.fuzz.bounded import main
from tests.fuzz.mutations import mutated, mutated_bytes, mutated_text
from tests.warehouse.states.scenes import add_link
from transforms.online.row_block import block_of
from transforms.online.states import OnlineStates
from warehouse.states.folder import read_states
from warehouse.states.link import MANIFEST, removed_file, rows_file

UNDAMAGED = -1


@cache
def _links() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="states-"))
    for number in range(2):
        add_link(folder, number)
    return folder


def _asked(folder: Path) -> None:
    found = read_states(folder)
    rows = {name: block_of(table) for name, table in found.rows.items()}
    states = OnlineStates(found.link.joined_tables(), rows, since_micros=found.link.since_micros)
    states.features(dict.fromkeys(states.keys), datetime(2027, 1, 1, tzinfo=UTC))


def _copied(trial: Any) -> Any:
    def run(seed: int) -> None:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "states"
            shutil.copytree(_links(), folder)
            if seed != UNDAMAGED:
                trial(folder, random.Random(seed))
            _asked(folder)

    return run


def _signed(document: Any) -> bytes:
    def text(value: Any) -> bytes:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode(
            "utf-8", "surrogatepass"
        )

    if not isinstance(document, dict):
        return text(document)
    body = {name: value for name, value in document.items() if name != "sha256"}
    return text({**body, "sha256": hashlib.sha256(text(body)).hexdigest()})


def _manifest(folder: Path, draws: random.Random) -> None:
    path = folder / draws.choice(["000000-full", "000001-delta"]) / MANIFEST
    document = json.loads(path.read_text())
    if draws.random() < 0.8:
        path.write_bytes(_signed(mutated(copy.deepcopy(document), draws)))
    else:
        path.write_bytes(mutated_text(document, draws))


def _files(folder: Path, draws: random.Random) -> None:
    """Other bytes of a file, of which the manifest has the digest."""
    link = folder / "000001-delta"
    position, is_rows = draws.randrange(2), draws.random() < 0.8
    path = link / (rows_file(position) if is_rows else removed_file(position))
    data = mutated_bytes(path.read_bytes(), draws)
    path.write_bytes(data)
    document = json.loads((link / MANIFEST).read_text())
    stated = {"size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    document["tables"][position]["rows_file" if is_rows else "removed_file"] = stated
    if not is_rows:
        document["tables"][position]["removed"] = len(data) // 8
    (link / MANIFEST).write_bytes(_signed(document))


if __name__ == "__main__":
    main({"manifest": _copied(_manifest), "files": _copied(_files)}, UNDAMAGED)
