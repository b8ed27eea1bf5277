"""FBGEMM's table-batched embedding on CPU as a side of ``benchmarks.embedding_kernels``; runs in the environment ``.fbgemm``."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    OptimType,
    SplitTableBatchedEmbeddingBagsCodegen,
)

from benchmarks.support.embedding_cases import EPSILON, RATE, START, Case, serve

Array = np.ndarray[Any, np.dtype[Any]]


class FbgemmRunner:
    """EXACT_ROWWISE_ADAGRAD in float32."""

    def __init__(self, case: Case, threads: int) -> None:
        torch.set_num_threads(threads)
        self._tables = SplitTableBatchedEmbeddingBagsCodegen(
            [(rows, dim, EmbeddingLocation.HOST, ComputeDevice.CPU) for rows, dim in case.tables],
            feature_table_map=[table for table, _ in case.inputs],
            optimizer=OptimType.EXACT_ROWWISE_ADAGRAD,
            learning_rate=RATE,
            eps=EPSILON,
            pooling_mode=PoolingMode.SUM,
        )
        for weights in self._tables.split_embedding_weights():
            weights.fill_(START)
        self._ids = torch.from_numpy(np.concatenate(case.ids()))
        lengths = np.concatenate([np.full(case.events, valency) for _, valency in case.inputs])
        self._offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
        self._gradients = torch.from_numpy(case.gradients())

    def lookup(self) -> Array:
        """See :class:`Runner`."""
        with torch.no_grad():
            found: Array = self._tables(self._ids, self._offsets).numpy()
        return found

    def both(self) -> None:
        """See :class:`Runner`."""
        self._tables(self._ids, self._offsets).backward(self._gradients)


if __name__ == "__main__":
    serve(FbgemmRunner)
