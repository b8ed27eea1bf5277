"""TorchRec on CPU as a side of ``benchmarks.dlrm_throughput``; runs in the environment ``.fbgemm``.

The fastest of what TorchRec offers on CPU: tables fused into FBGEMM's kernels, which update rows in the backward pass, Adam as one fused
operation, and batches cut out of whole row groups that a thread decodes ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torchrec import EmbeddingBagConfig, KeyedJaggedTensor, PoolingType
from torchrec.models.dlrm import DLRM
from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection

from benchmarks.support.dlrm_case import DlrmCase, Measured, RowGroup, row_groups, run_side

Array = np.ndarray[Any, np.dtype[Any]]
_Batch = tuple[torch.Tensor, KeyedJaggedTensor, torch.Tensor]


def _tables(case: DlrmCase) -> Any:
    configs = [
        EmbeddingBagConfig(
            name=f"t_{name}",
            embedding_dim=case.dim,
            num_embeddings=rows,
            feature_names=[name],
            pooling=PoolingType.MEAN,
        )
        for name, rows in case.buckets.items()
    ]
    options = {"lr": case.embedding_rate, "eps": 1e-12}
    tables = FusedEmbeddingBagCollection(configs, optimizer_type=torch.optim.Adagrad, optimizer_kwargs=options)
    stddev = case.initial_stddev
    for weights in tables.state_dict().values():
        torch.nn.init.trunc_normal_(weights, std=stddev, a=-2 * stddev, b=2 * stddev)
    for slots in tables.fused_optimizer().state_dict()["state"].values():
        for slot in slots.values():
            slot.fill_(case.accumulator)
    return tables


def _dense(case: DlrmCase, model: Any) -> list[torch.nn.Parameter]:
    """The parameters of the MLPs, which start as Keras's do."""
    found = []
    for mlp in (model.dense_arch, model.over_arch):
        for layer in mlp.modules():
            if isinstance(layer, torch.nn.Linear):
                torch.nn.init.xavier_uniform_(layer.weight)
                torch.nn.init.zeros_(layer.bias)
                last = layer
        found += list(mlp.parameters())
    torch.nn.init.constant_(last.bias, case.initial_bias)
    return found


def _batches(case: DlrmCase, groups: Iterator[RowGroup]) -> Iterator[_Batch]:
    names = list(case.buckets)
    for group in groups:
        numbers, labels = torch.from_numpy(group.numbers), torch.from_numpy(group.labels.astype(np.float32))
        lengths = torch.from_numpy(np.stack([np.diff(group.starts[name]) for name in names]))
        ids = [torch.from_numpy(group.ids[name]) for name in names]
        starts = [group.starts[name] for name in names]
        for first in range(0, len(labels), case.batch_rows):
            stop = min(first + case.batch_rows, len(labels))
            values = torch.cat([one[at[first] : at[stop]] for one, at in zip(ids, starts, strict=True)])
            bags = KeyedJaggedTensor(names, values, lengths=lengths[:, first:stop].reshape(-1))
            yield numbers[first:stop], bags, labels[first:stop]


def build(case: DlrmCase, folder: Path) -> Callable[[Measured], Array]:
    """See :data:`~benchmarks.support.dlrm_case.Build`."""
    torch.set_num_threads(case.threads)
    torch.manual_seed(case.seed)
    model = DLRM(_tables(case), len(case.numbers), [*case.bottom_mlp, case.dim], [*case.top_mlp, 1])
    optimizer = torch.optim.Adam(_dense(case, model), case.dense_rate, eps=1e-7, fused=True)
    losses = torch.nn.BCEWithLogitsLoss()

    def run(measured: Measured) -> Array:
        measured.begin()
        for numbers, bags, labels in _batches(case, row_groups(folder / "train.parquet", case)):
            optimizer.zero_grad(set_to_none=True)
            losses(model(numbers, bags).squeeze(1), labels).backward()
            optimizer.step()
            measured.tick(len(labels))
        with torch.no_grad():
            found = [model(numbers, bags).squeeze(1) for numbers, bags, _ in
                     _batches(case, row_groups(folder / "test.parquet", case))]  # fmt: skip
        return torch.cat(found).numpy()

    return run


if __name__ == "__main__":
    run_side(build)
