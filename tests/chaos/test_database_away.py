"""A catalog that is restarted while workers run."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from pipelines.worker.state_machine import Instruction, Lease
from pipelines.worker.worker import WorkerConfig, run_worker
from tests.chaos.scene import config_of, models, write_log
from tests.support.postgresql import running
from transforms.errors import Busy
from warehouse import register_table, submit_model
from warehouse.warehouse import Warehouse

#: Longer than any one transaction is tried again by itself.
_AWAY_SECS = 15.0


@pytest.mark.slow
def test_a_worker_outlives_its_database(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log", hours=3)
    with running() as server, Warehouse.open(config_of(str(tmp_path / "home"), server.database())) as warehouse:
        register_table(warehouse, "log", str(log))
        queued = sum(submit_model(warehouse, one).queued for one in models(8))
        back = threading.Timer(_AWAY_SECS, server.start)

        def take_away(instruction: Instruction) -> None:
            if instruction == Lease() and not back.is_alive() and not back.finished.is_set():
                server.stop()
                back.start()

        report = run_worker(warehouse, WorkerConfig("patient", runner_workers=1), until_idle=True, on_step=take_away)
        back.join()
        assert report.memos == queued == 24
        assert report.times_busy >= 1, "nothing was waited out"


@pytest.mark.slow
def test_a_worker_without_catalog_patience_fails_with_the_cause(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log", hours=1)
    with running() as server, Warehouse.open(config_of(str(tmp_path / "home"), server.database())) as warehouse:
        register_table(warehouse, "log", str(log))
        submit_model(warehouse, models(4)[0])
        config = WorkerConfig("hasty", runner_workers=1, catalog_retry_secs=0)
        with pytest.raises(Busy, match="the catalog cannot be reached"):
            run_worker(warehouse, config, until_idle=True, on_step=lambda _: server.stop())
