"""A trainer that a test kills: ``python -m tests.torch.trainer HOME RANK WORLD WORKERS STEPS STATE LOG OPTIONS``.

It takes batches of the model ``first`` from a ``StatefulDataLoader``. Each is a line of LOG, and then STATE has the loader's state and the length of LOG, as a
checkpoint has it beside the weights. ``STATE.loader``, if it is there, is loaded into the loader; ``STATE.dataset`` into the dataset. After STEPS batches it prints ``ready`` and
stands still until it is killed; 0: it ends after the last one.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torchdata.stateful_dataloader import StatefulDataLoader

import headrace as hr


def rows_of(batch: Any) -> list[tuple[int, float, float]]:
    """The user, price and label of each event of a batch."""
    users = batch.ids["user"].values
    return [*zip((users() if callable(users) else users).tolist(), batch.dense[:, 0].tolist(), batch.labels.tolist(), strict=True)]  # fmt: skip


def main(home: str, rank: str, world: str, workers: str, steps: str, state: str, log: str, options: str) -> None:
    dataset = hr.torch("first", home=home, rank=int(rank), world=int(world), **json.loads(options))
    if Path(f"{state}.dataset").exists():
        dataset.load_state_dict(torch.load(f"{state}.dataset"))
    loader = StatefulDataLoader(dataset, batch_size=None, num_workers=int(workers))
    if Path(f"{state}.loader").exists():
        loader.load_state_dict(torch.load(f"{state}.loader"))
    with Path(log).open("a", encoding="utf-8") as lines:

        def save() -> None:
            torch.save({"state": loader.state_dict(), "lines": lines.tell()}, f"{state}.new")
            os.replace(f"{state}.new", state)

        save()
        for number, batch in enumerate(loader, start=1):
            lines.write(json.dumps(rows_of(batch)) + "\n")
            lines.flush()
            save()
            if number == int(steps):
                print("ready", flush=True)
                time.sleep(600)
    print("end", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
