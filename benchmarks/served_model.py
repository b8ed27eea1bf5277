"""Time of a prediction by an exported SavedModel, from raw columns, against the same model in plain Keras with Keras's own preprocessing layers.

    python -m benchmarks.served_model [--rounds 9] [--secs 0.3]

The model is that of the CSV chapter of docs/your-own-log.md (hashed text, lower case, a cross of text and a bucket of a number, a logarithm, an hour) with a DLRM and a linear part: trained,
exported by ``headrace model export --trained``. The plain model has tables and layers of the same sizes, and ``Hashing``, ``HashedCrossing`` and ``Discretization`` in place of our
transforms, whose hashes are other ones: it is not bit-equal to anything that was trained on. Both are SavedModels that are called through their signature with tensors, for one event and for
256, by one thread. Rounds alternate; times are processor seconds, the least of the rounds, beside the ratios within rounds. The parts of our graph are timed alone, too: the features without the model.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import keras
import numpy as np
import tensorflow as tf

from benchmarks.support.harness import machine
from tests.support.own_log_page import chapter
from tests.support.own_logs import write_coupons

TARGET = 1.2
_ROOT = Path(__file__).resolve().parents[1]
_OPTIONS = {
    "deep": True,
    "network": "dlrm",
    "linear": True,
    "passes": 1,
    "dim": 16,
    "bottom_mlp": [64],
    "top_mlp": [64, 32],
    "activation": "leaky_relu",
}
_BINS = [40.0, 50.0, 60.0, 70.0, 80.0]


def exported(folder: Path, rows: int) -> tuple[Path, Path]:
    """The SavedModels of the trained model and of its features alone."""
    write_coupons(folder / "coupons.csv", rows)
    (folder / "coupons.py").write_text(chapter("CSV and TSV").model)
    (folder / "options.json").write_text(json.dumps(_OPTIONS))
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), "HEADRACE_HOME": str(folder / "home")}
    for line in (
        "table infer coupons.csv --output coupons.json",
        "table import coupons coupons.csv --schema coupons.json",
        "model submit coupons.py",
        "work --until-idle",
        "train coupons --config options.json --run-dir run",
        "model export coupons --output trained --trained run",
        "model export coupons --output features",
    ):
        done = subprocess.run([sys.executable, "-m", "headrace", *line.split()], cwd=folder, env=environment,
                              capture_output=True, text=True, check=False)  # fmt: skip
        if done.returncode:
            raise SystemExit(f"headrace {line} failed:\n{done.stderr}")
    return folder / "trained" / "1", folder / "features" / "1"


def plain(folder: Path) -> Path:
    """The SavedModel of the same model in plain Keras."""
    layers, dim = keras.layers, int(_OPTIONS["dim"])  # type: ignore[call-overload]
    inputs = {
        "coupon": keras.Input((), dtype="string", name="coupon"),
        "genre": keras.Input((), dtype="string", name="genre"),
        "discount": keras.Input((), dtype="int64", name="discount"),
        "price": keras.Input((), dtype="int64", name="price"),
        "viewed_at": keras.Input((), dtype="int64", name="viewed_at"),
    }
    bucket = layers.Discretization(_BINS)(inputs["discount"])
    ids = {
        "coupon": (1000, layers.Hashing(1000)(inputs["coupon"])),
        "genre": (100, layers.Hashing(100)(layers.Lambda(tf.strings.lower, output_shape=())(inputs["genre"]))),
        "cross": (
            1000,
            layers.HashedCrossing(1000)(
                (inputs["genre"], layers.Lambda(tf.strings.as_string, output_shape=())(bucket))
            ),
        ),
        "hour": (24, layers.Lambda(lambda t: t // 3_600_000_000 % 24, output_shape=())(inputs["viewed_at"])),
    }
    price = layers.Lambda(lambda x: tf.math.log1p(tf.cast(x, tf.float32))[:, None], output_shape=(1,))(inputs["price"])
    price = layers.Normalization(mean=8.0, variance=2.0)(price)
    vectors = [layers.Embedding(size, dim)(found) for size, found in ids.values()]
    hidden = price
    for units in (64, dim):
        hidden = layers.Dense(units, "leaky_relu")(hidden)
    stacked = layers.Lambda(lambda parts: tf.stack(parts, axis=1), output_shape=(len(vectors) + 1, dim))(
        [*vectors, hidden]
    )
    rows, columns = np.tril_indices(len(vectors) + 1, -1)
    places = rows * (len(vectors) + 1) + columns
    pairs = layers.Lambda(
        lambda x: tf.gather(tf.reshape(tf.matmul(x, x, transpose_b=True), [-1, x.shape[1] ** 2]), places, axis=1),
        output_shape=(len(places),),
    )(stacked)
    hidden = layers.Concatenate()([hidden, pairs])
    for units in (64, 32):
        hidden = layers.Dense(units, "leaky_relu")(hidden)
    parts = [
        layers.Dense(1)(hidden),
        *(layers.Embedding(size, 1)(found) for size, found in ids.values()),
        layers.Dense(1)(price),
    ]
    prediction = layers.Activation("sigmoid")(layers.Add()(parts))
    keras.Model(inputs, prediction).export(str(folder / "plain"), verbose=False)
    return folder / "plain"


def events(rows: int) -> dict[str, Any]:
    """Raw columns, with none missing."""
    draw = np.random.default_rng(rows)
    columns = {
        "coupon": np.array([f"c{k:03d}".encode() for k in draw.integers(0, 80, rows)], object),
        "genre": np.array([[b"Restaurant", b"Spa, nails", b"Hotel"][k] for k in draw.integers(0, 3, rows)], object),
        "discount": draw.integers(30, 95, rows),
        "price": draw.integers(500, 60_000, rows),
        "viewed_at": draw.integers(1_772_000_000_000_000, 1_773_000_000_000_000, rows),
    }
    return {name: tf.constant(one) for name, one in columns.items()}


def caller(folder: Path, columns: Mapping[str, Any]) -> Callable[[], object]:
    """A call of a SavedModel's signature with some columns."""
    loaded = tf.saved_model.load(str(folder))
    signature = loaded.signatures["serving_default"]
    names = signature.structured_input_signature[1]
    rows = next(iter(columns.values())).shape[0]
    given = {name: columns[name] if name in columns else tf.zeros([rows], spec.dtype) for name, spec in names.items()}

    def call(held: object = loaded) -> object:
        return [one.numpy() for one in signature(**given).values()]

    return call


def main() -> None:
    """Print the times of one event and of 256."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--secs", type=float, default=0.3, help="of each side in a round")
    parser.add_argument("--rows", type=int, default=20_000, help="events that the model is trained on")
    given = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    print(f"{machine()}; target: {TARGET} of plain Keras")
    with tempfile.TemporaryDirectory(prefix="headrace-served-") as name:
        trained, features = exported(Path(name), given.rows)
        folders = {"plain Keras": plain(Path(name)), "ours": trained, "our features alone": features}
        for rows in (1, 256):
            columns = events(rows)
            sides = {side: caller(folder, columns) for side, folder in folders.items()}
            found: dict[str, list[float]] = {side: [] for side in sides}
            for side in sides.values():
                side()
            for _ in range(given.rounds):
                for side, call in sides.items():
                    began, cpu, calls = time.perf_counter(), time.process_time(), 0
                    while time.perf_counter() - began < given.secs:
                        call()
                        calls += 1
                    found[side].append((time.process_time() - cpu) / calls * 1e6)
            print(f"{rows} event{'s' if rows > 1 else ''}")
            for side, times in found.items():
                ratios = sorted(one / base for one, base in zip(times, found["plain Keras"], strict=True))
                least = min(times) / min(found["plain Keras"])
                print(
                    f"  {side:20}{min(times):9.0f} us, {least:5.2f} of plain Keras, {ratios[0]:.2f} to {ratios[-1]:.2f}"
                )


if __name__ == "__main__":
    main()
