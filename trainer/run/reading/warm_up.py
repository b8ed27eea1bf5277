"""Load the compiled kernels of readers and hosts before the first unit."""

from __future__ import annotations

import pyarrow as pa

from trainer.model.inputs import InputLayout, TypedInput
from trainer.run.reading.batches import BatchAssembler, make_batches
from trainer.run.reading.columns import read_columns
from trainer.run.reading.packed_units import PackedUnit, UnitDecoder, UnitLayout, pack_unit
from trainer.run.reading.shuffling import ShuffleWindow
from trainer.run.reading.unit_requests import UnitRequest
from transforms.columns.arrow_types import arrow_type
from transforms.types import ColumnType, Dense, DType, Ragged, Weighted


def warm_up() -> None:
    """Pack, decode and stack a unit of one event, also as a shuffled one: kernels that are compiled on disk are loaded, others compiled."""
    kinds: dict[str, ColumnType] = {
        "id": Dense(DType.INT64, 2),
        "ids": Ragged(DType.INT64, 2),
        "pairs": Weighted(DType.INT64, 2),
    }
    values = {"id": [1], "ids": [[1]], "pairs": [[{"id": 1, "weight": 1.0}]], "number": [1.0]}
    table = pa.table(
        {name: pa.array(values[name], arrow_type(kind)) for name, kind in kinds.items()}
        | {"number": pa.array(values["number"], pa.float32()), "__label__": pa.array([1])}
    )
    embedded = tuple(TypedInput(name, kind) for name, kind in kinds.items())
    layout = InputLayout(embedded, (TypedInput("number", Dense(DType.FLOAT32)),), ())
    unit = PackedUnit.of(pack_unit(read_columns(table, layout, "warm-up"), UnitLayout.of(layout)))
    decoded = UnitDecoder(layout)(UnitRequest(0, 0, "0" * 64, "warm-up", 0, 1), unit)
    list(make_batches([decoded], layout, batch_rows=1))
    assembler = BatchAssembler(layout, 1, ShuffleWindow(1))
    assembler.add(decoded)
    assembler.take()
