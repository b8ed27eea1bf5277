from __future__ import annotations

import pytest

from trainer.errors import ConfigError
from trainer.tables import SGD, Adagrad, CpuEngine, FeatureSpec, RowWiseAdagrad, TableSpec
from trainer.tables.kernels.table_bytes import does_not_fit, machine_bytes, row_bytes


def test_a_row_has_weights_slots_and_a_state():
    assert row_bytes(TableSpec("t", 10, 380, Adagrad(0.1))) == 2 * 380 * 4 + 1
    assert row_bytes(TableSpec("t", 10, 380, RowWiseAdagrad(0.1))) == 381 * 4 + 1
    assert row_bytes(TableSpec("t", 10, 380, SGD(0.1))) == 380 * 4 + 1


def test_the_error_states_the_missing_bytes_the_largest_tables_and_what_fits():
    tables = [TableSpec(f"t{k}", rows, 100, SGD(0.1)) for k, rows in enumerate((1_000_000, 50_000_000, 10, 20, 30))]
    text = str(does_not_fit(tables, 10_000_000_000))
    assert "20.5 GB with every row in use, 10.5 GB more than there is" in text
    assert "10.0 GB on this machine: 23,937,595 rows of table t1 beside the others" in text
    assert "table t1: 50,000,000 rows of 401 bytes, 20.1 GB; table t0: 1,000,000 rows" in text
    assert "and 2 more" in text
    rows = int(text.partition("machine: ")[2].split()[0].replace(",", ""))
    assert (rows + 1_000_060) * 401 <= 10_000_000_000 < (rows + 1_000_061) * 401
    assert "1.0% of the rows of each table" in str(does_not_fit(tables[:2], 20_451_000_000 // 100))


def test_the_engine_refuses_a_table_larger_than_the_machine():
    rows = machine_bytes() // (4 * 380) + 300_000_000
    table = TableSpec("wide", rows, 380, RowWiseAdagrad(0.1))
    with pytest.raises(ConfigError, match=r"(?s)must fit in memory.*table wide: .* rows of 1,525 bytes"):
        CpuEngine([FeatureSpec("f", table)], seed=0)
