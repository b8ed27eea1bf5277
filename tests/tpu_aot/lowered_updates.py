"""The lowered updates of optimizers, without what says where a text comes from: a process of the environment of ``make tpu``."""

from __future__ import annotations

import json
import re
import sys

from tests.tpu_aot.sparse_core_step import lower_update
from trainer.tables import optimizers
from trainer.tpu_check.sparse_core_count import set_sparse_cores


def program(kind: str, settings: dict) -> str:
    """The program of one optimizer."""
    hlo = lower_update(getattr(optimizers, kind)(**settings), dim=8)
    return re.sub(r", metadata=\{[^}]*\}|(?<=[a-zA-Z_])\.\d+\b|(?<=_inference_update_)\d+", "", hlo)


if __name__ == "__main__":
    set_sparse_cores(4)
    wanted = json.load(sys.stdin)["optimizers"]
    sys.stdout.write(json.dumps({"programs": [program(kind, settings) for kind, settings in wanted]}) + "\n")
