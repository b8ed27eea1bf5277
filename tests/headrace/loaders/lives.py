"""A program that a test kills: ``python lives.py HOME RANK WORLD STEPS STATE LOG OPTIONS``.

It hands out batches of the model ``first``, as a trainer does that saves the state with its weights after each step: a batch is a line of LOG, and then STATE
holds the loader's state and the length of LOG. The states in ``STATE.before``, if it is there, are loaded first. After STEPS batches it prints ``ready`` and stands still
until it is killed; 0: it ends after the last one.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from headrace.loaders.batches import batches


def main(home: str, rank: str, world: str, steps: str, state: str, log: str, options: str) -> None:
    loader = batches("first", home=home, rank=int(rank), world=int(world), **json.loads(options))
    before = Path(f"{state}.before")
    if before.exists():
        loader.load_state_dict(json.loads(before.read_text(encoding="utf-8")))
    with Path(log).open("a", encoding="utf-8") as lines:

        def save(document: Any) -> None:
            Path(f"{state}.new").write_text(json.dumps({"state": document, "lines": lines.tell()}), encoding="utf-8")
            os.replace(f"{state}.new", state)

        save(loader.state_dict())
        for number, batch in enumerate(loader, start=1):
            users, prices = batch.ids["user"].values.tolist(), batch.dense[:, 0].tolist()
            lines.write(json.dumps([*zip(users, prices, batch.labels.tolist(), strict=True)]) + "\n")
            lines.flush()
            save(loader.state_dict())
            if number == int(steps):
                print("ready", flush=True)
                time.sleep(600)
    print("end", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
