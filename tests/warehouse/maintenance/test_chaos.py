"""Workers, evictions, compactions, collections and readers at once, killed with SIGKILL at random times.

Processes are forked from one that has everything loaded, so that kills meet work and not imports.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.support.processes import PATIENCE_SECS
from tests.warehouse.scenes import FREE_READS, model, start, work, write_log
from warehouse import (
    Warehouse,
    WarehouseConfig,
    collect_garbage,
    live_pins,
    read_fragment,
    read_solution,
    register_table,
    submit_model,
    verify_warehouse,
)
from warehouse.catalog import schema
from warehouse.scheduling.task_states import MemoState

_ROLES = """
import os, random, signal, sys, time, traceback
from tests.warehouse.scenes import FREE_READS, events, evict_component, model, work_together
from transforms.errors import DataError
from transforms.execution.plan import compile_plan
from warehouse import *

home, kills, seed, patience_secs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
config = WarehouseConfig(home, lease_secs=0.4, max_attempts=10**6, max_losses=10**6, pin_ttl_secs=1.0, read_threads=1,
                         rates=FREE_READS)
compile_plan({name: item.component for name, item in model(inputs=5).inputs.items()}).run(events(3))

def worker(warehouse, draw):
    return work_together(warehouse, f"worker-{os.getpid()}", draw.choice((2, 5, 100)))

def evictor(warehouse, draw):
    solution = read_solution(warehouse, draw.choice(("one", "two")))
    chosen = draw.choice([item.fingerprint for item in solution.inputs if item.name != "price"])
    gone = evict_component(warehouse, chosen).memos
    submit_model(warehouse, model("one", "ads", inputs=5))
    submit_model(warehouse, model("two", inputs=4, buckets=77))
    return gone

def compactor(warehouse, draw):
    policy = CompactionPolicy(threshold=0.9, least_gain_bytes=1, many_files=2)
    return compact_memos(warehouse, policy, dry_run=False).memos

def collector(warehouse, draw):
    return len(collect_garbage(warehouse, dry_run=False, leftover_secs=draw.choice((0.0, 0.3))).garbage)

def reader(warehouse, draw):
    began = time.monotonic()
    def damaged(key, path, error):
        if time.monotonic() - began < config.pin_ttl_secs:  # later, a busy machine may have starved the heartbeats
            raise AssertionError(f"a pinned memo was not there: {path}: {error}")
    with pinned_solution(warehouse, draw.choice(("one", "two")), holder="reader") as solution:
        for fragment in solution.fragments:
            read_fragment(warehouse.storage, solution, fragment, on_damage=damaged)
    return solution.count("load")

def attempt(role, warehouse, draw):
    try:
        return role(warehouse, draw)
    except DataError as error:
        # Who is given no time to write has his unfinished file taken away, and is told so.
        if role in (worker, compactor) and error.what == "cannot write a file that is not there":
            return 0
        raise

def live(role, number):
    try:
        draw = random.Random(seed * 1000 + number)
        with Warehouse.open(config) as warehouse, open(f"{home}/done", "a", buffering=1) as done:
            while True:
                done.write(f"{role.__name__} {attempt(role, warehouse, draw)}\\n")
                time.sleep(draw.uniform(0, 0.05))
    except BaseException:
        traceback.print_exc()
        os._exit(1)

def fork(role, number):
    child = os.fork()
    if child == 0:
        live(role, number)
    return child

draw, number = random.Random(seed), 0
roles = [worker, worker, evictor, compactor, collector, reader]
children = {}
for role in roles:
    number += 1
    children[fork(role, number)] = role
deadline, killed, failed = time.monotonic() + patience_secs, 0, []

def kill(victim):
    os.kill(victim, signal.SIGKILL)
    role = children.pop(victim)
    if not os.WIFSIGNALED(os.waitpid(victim, 0)[1]):
        failed.append(role.__name__)
    return role

def all_were_effective():
    with open(f"{home}/done") as done:
        return {line.split()[0] for line in done if not line.endswith(" 0\\n")} == {role.__name__ for role in roles}

# On a busy machine it takes longer until every role has had its turn.
while not failed and (killed < kills or not all_were_effective()) and time.monotonic() < deadline:
    time.sleep(draw.uniform(0.1, 0.6))
    role = kill(draw.choice(sorted(children)))
    killed, number = killed + 1, number + 1
    children[fork(role, number)] = role
for child in sorted(children):
    kill(child)
if failed:
    sys.exit(f"failed: {failed}")
print("killed", killed)
"""


@pytest.mark.medium
@pytest.mark.parametrize("kills", [10, pytest.param(150, marks=pytest.mark.slow)])
def test_everything_at_once(tmp_path: Path, kills: int) -> None:
    log = write_log(tmp_path / "log", hours=4, rows=60)
    home = str(tmp_path / "home")
    config = WarehouseConfig(
        home, max_attempts=10**6, max_losses=10**6, pin_ttl_secs=1.0, read_threads=1, rates=FREE_READS
    )
    with Warehouse.open(config) as warehouse:
        register_table(warehouse, "log", str(log))
        submit_model(warehouse, model("one", "ads", inputs=5))
        submit_model(warehouse, model("two", inputs=4, buckets=77))
        process = start(_ROLES, config.home, kills, 7, PATIENCE_SECS)
        printed, errors = process.communicate(timeout=1.5 * PATIENCE_SECS)
        assert process.returncode == 0, errors[-4000:]
        assert int(printed.split()[1]) >= kills, "too little was killed"
        done: Counter[str] = Counter()
        for line in (tmp_path / "home/done").read_text(encoding="utf-8").splitlines():
            role, count = line.split()
            done[role] += int(count)
        assert all(done[role] > 0 for role in ("worker", "evictor", "compactor", "collector", "reader")), done
        finish(warehouse)


def finish(warehouse: Warehouse) -> None:
    assert verify_warehouse(warehouse, recompute=20).findings == (), "before anything is tidied up"
    submit_model(warehouse, model("one", "ads", inputs=5))
    submit_model(warehouse, model("two", inputs=4, buckets=77))
    time.sleep(1.1)  # the leases and pins of the dead run out
    work(warehouse)
    with warehouse.catalog.read() as connection:
        unfinished = connection.execute(select(schema.tasks)).mappings().all()
    assert unfinished == [], f"{time.time()}: tasks that nothing leases"
    assert live_pins(warehouse) == ()
    collect_garbage(warehouse, dry_run=False, leftover_secs=-10)
    found = verify_warehouse(warehouse, recompute=20)
    assert (found.findings, found.memos) == ((), 4 * 8)
    home = Path(warehouse.config.home)
    with warehouse.catalog.read() as connection:
        named = select(schema.memo_files.c.path).join(schema.memos, schema.memos.c.file == schema.memo_files.c.id)
        ready = set(connection.execute(named.where(schema.memos.c.state == MemoState.READY)).scalars())
        assert set(connection.execute(select(schema.memo_files.c.path)).scalars()) == ready
    assert {str(path.relative_to(home)) for path in (home / "memos").rglob("*") if path.is_file()} == ready
    for name in ("one", "two"):
        solution = read_solution(warehouse, name)
        assert solution.count("compute") == 0
        assert all(
            read_fragment(warehouse.storage, solution, fragment).num_rows == 60 for fragment in solution.fragments
        )
