"""Checks that need PyTorch or JAX: ``python -m tests.torch.checks CHECK HOME``. Each prints JSON."""

from __future__ import annotations

import doctest
import json
import multiprocessing
import sys
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import headrace as hr
from tests.torch.trainer import rows_of

OPTIONS: dict[str, Any] = {"batch_rows": 32, "shuffle_events": 64, "jagged": False}


def tensors(home: str) -> dict[str, Any]:
    """Both forms of ids hold what the NumPy batches hold, and TorchRec and PyTorch embed them alike."""
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig

    numpy = list(hr.batches("second", home=home, batch_rows=50))
    jagged = list(hr.torch("second", home=home, batch_rows=50))
    plain = list(hr.torch("second", home=home, batch_rows=50, jagged=False))
    sizes = {"overlap": 1000, "user": 500, "position": 10}
    bags = {name: torch.nn.EmbeddingBag(size, 4, mode="sum", include_last_offset=True) for name, size in sizes.items()}
    tables = EmbeddingBagCollection([
        EmbeddingBagConfig(name=name, embedding_dim=4, num_embeddings=size, feature_names=[name]) for name, size in sizes.items()
    ])  # fmt: skip
    for name, bag in bags.items():
        tables.embedding_bags[name].weight.data.copy_(bag.weight.data)
    for batch, one, other in zip(numpy, jagged, plain, strict=True):
        assert one.ids.keys() == list(batch.ids) == list(other.ids)
        pooled = tables(one.ids)
        for name, ids in batch.ids.items():
            assert np.array_equal(ids.values, one.ids[name].values().numpy())
            assert np.array_equal(np.diff(ids.offsets), one.ids[name].lengths().numpy())
            assert np.array_equal(ids.values, other.ids[name].values.numpy())
            assert np.array_equal(ids.offsets, other.ids[name].offsets.numpy())
            assert torch.allclose(pooled[name], bags[name](other.ids[name].values, other.ids[name].offsets))
        for made in (one, other):
            moved = made.to("cpu")
            assert np.array_equal(batch.dense, moved.dense.numpy())
            assert np.array_equal(batch.labels, moved.labels.numpy())
            assert np.array_equal(batch.weights, moved.weights.numpy())
    return {"batches": len(numpy), "tensorflow": "tensorflow" in sys.modules}


def workers(home: str) -> list[int]:
    """Loaders with any number of workers, also by new processes, give the same batches, in each iteration."""
    whole = [rows_of(one) for one in hr.torch("first", home=home, **OPTIONS)]
    spawned = (2, "spawn")
    for kind, ways in (
        (DataLoader, [(0, None), (3, "fork")]),
        (StatefulDataLoader, [(1, "fork"), (3, "fork"), spawned]),
    ):
        for count, start in ways:
            events = hr.torch("first", home=home, **OPTIONS)
            loader = kind(events, batch_size=None, num_workers=count, multiprocessing_context=start)
            for _ in range(1 if start == "spawn" else 2):
                assert [rows_of(one) for one in loader] == whole, (kind, count, start)
    return [len(whole), sum(map(len, whole))]


def states(home: str) -> list[list[int]]:
    """States of loaders go on with the same batches, and in other numbers of workers."""
    whole = [rows_of(one) for one in hr.torch("first", home=home, **OPTIONS)]
    made = []
    for count in (0, 1, 2):
        loader = StatefulDataLoader(hr.torch("first", home=home, **OPTIONS), batch_size=None, num_workers=count)
        iteration = iter(loader)
        begun = [rows_of(one) for one in islice(iteration, 3)]
        state = loader.state_dict()
        json.dumps(state, default=str)
        del iteration
        again = StatefulDataLoader(hr.torch("first", home=home, **OPTIONS), batch_size=None, num_workers=count)
        again.load_state_dict(state)
        assert begun + [rows_of(one) for one in again] == whole, count
        assert [rows_of(one) for one in again] == whole, count
        for other in (0, 3):
            events = hr.torch("first", home=home, **OPTIONS)
            events.load_state_dict(state)
            rest = [rows_of(one) for one in StatefulDataLoader(events, batch_size=None, num_workers=other)]
            assert begun + rest == whole, (count, other)
            made.append([count, other, len(rest)])
    return made


def sparse_state(home: str) -> str:
    """A state that has no snapshot of its last step is refused: its events would be handed out again."""
    events = hr.torch("first", home=home, **OPTIONS)
    loader = StatefulDataLoader(events, batch_size=None, num_workers=1, snapshot_every_n_steps=2)
    iteration = iter(loader)
    next(iteration)
    try:
        events.load_state_dict(loader.state_dict())
    except hr.HeadraceError as error:
        return error.what
    return "loaded"


def of_jax(home: str) -> dict[str, Any]:
    """JAX batches have fixed shapes, and a compiled step pools what NumPy pools."""
    import jax
    import jax.numpy as jnp

    most = 300
    table = np.random.default_rng(1).normal(size=(1000, 4)).astype(np.float32)
    rows_of_table, compiled = jnp.asarray(table), 0

    @jax.jit
    def pooled(ids: Any) -> Any:
        nonlocal compiled
        compiled += 1
        events = len(ids["offsets"]) - 1
        event = jnp.searchsorted(ids["offsets"], jnp.arange(most), side="right") - 1
        return jax.ops.segment_sum(rows_of_table[ids["values"]], event, num_segments=events)

    loader = hr.jax("first", home=home, batch_rows=64, most_ids={"overlap": most})
    rows = 0
    for batch, wanted in zip(loader, hr.batches("first", home=home, batch_rows=64, pad=True), strict=True):
        ids = wanted.ids["overlap"]
        expected = np.zeros((64, 4), np.float32)
        np.add.at(expected, np.repeat(np.arange(64), np.diff(ids.offsets)), table[ids.values])
        assert np.allclose(pooled(batch["ids"]["overlap"]), expected, atol=1e-5)
        assert batch["ids"]["user"]["values"].shape == (64,)
        assert np.array_equal(batch["dense"], wanted.dense)
        assert np.array_equal(batch["weights"], wanted.weights)
        rows += int(batch["weights"].sum())
    errors = []
    for bound in (2, {"overlap": 0}, {"other": 5}, {}):
        try:
            list(hr.jax("first", home=home, batch_rows=64, most_ids=bound))
        except hr.HeadraceError as error:
            errors.append(error.what)
    return {"rows": rows, "compiled": compiled, "errors": errors}


def examples(home: str) -> int:
    """The examples of the docstrings are true; returns how many there are."""
    found = [doctest.DocTestFinder(recurse=False).find(one, name, globs={name: one, "home": home}, module=False) for name, one in (("torch", hr.torch), ("jax", hr.jax))]  # fmt: skip
    failures: list[str] = []
    for one in (test for tests in found for test in tests):
        doctest.DocTestRunner().run(one, out=failures.append)
    assert not failures, "".join(failures)
    return sum(len(test.examples) for tests in found for test in tests)


CHECKS = {
    "examples": examples,
    "tensors": tensors,
    "workers": workers,
    "states": states,
    "sparse_state": sparse_state,
    "jax": of_jax,
}

if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    print(json.dumps(CHECKS[sys.argv[1]](sys.argv[2])))
