from __future__ import annotations

from tests.trainer.run.reading.test_batches import NULLABLE_LAYOUT, nullable_table
from trainer.run.reading import kernels, packing
from trainer.run.reading.batches import make_batches
from trainer.run.reading.columns import read_columns
from trainer.run.reading.packed_units import PackedUnit, UnitDecoder, UnitLayout, pack_unit
from trainer.run.reading.unit_requests import UnitRequest
from trainer.run.reading.warm_up import warm_up


def test_a_unit_needs_no_kernel_that_the_warm_up_did_not_load():
    warm_up()
    found = [
        kernels.most_ids,
        kernels.stack_ids,
        kernels.copy_numbers,
        packing.describe,
        packing.pack,
        packing.place,
        packing.point,
    ]
    signatures = [len(kernel.signatures) for kernel in found]
    stored = read_columns(nullable_table(20, seed=1), NULLABLE_LAYOUT, "f")
    unit = PackedUnit.of(pack_unit(stored.part(3, 18), UnitLayout.of(NULLABLE_LAYOUT)).tobytes())
    request = UnitRequest(0, 0, "0" * 64, "f", 0, 20)
    for delivered in (unit, stored.part(3, 18)):
        list(make_batches([UnitDecoder(NULLABLE_LAYOUT)(request, delivered)], NULLABLE_LAYOUT, batch_rows=4))
    assert [len(kernel.signatures) for kernel in found] == signatures
