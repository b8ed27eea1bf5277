"""A real PostgreSQL server that rolls back, disconnects, restarts and refuses."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Connection, func, insert, select, text, update

from tests.contracts.severing_proxy import Moment, severing
from tests.contracts.test_catalog_contract import ready_files
from tests.support.postgresql import PostgresServer, database_of, locks_waited_for
from tests.support.processes import PATIENCE_SECS
from tests.warehouse.scenes import REPOSITORY, compute, model, pretended, write_log
from transforms.errors import HeadraceError, InputError, StorageError
from warehouse import (
    ComponentQuery,
    Warehouse,
    WarehouseConfig,
    commit_memos,
    lease_tasks,
    register_table,
    search_components,
    submit_model,
)
from warehouse.catalog import schema
from warehouse.catalog.catalog import IDLE_TRANSACTION_SECS, Catalog, insert_absent
from warehouse.errors import CatalogBusy, CatalogConflict, CatalogFull, CatalogLost, CommitInDoubt

NewDatabase = Callable[..., str]
CLIENTS = schema.clients


@pytest.fixture
def url(new_database: NewDatabase) -> str:
    return new_database()


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def catalog(url: str, waits: list[float]) -> Iterator[Catalog]:
    opened = Catalog.open(url, sleep=waits.append)
    yield opened
    opened.close()


def add(connection: Connection, name: str = "a") -> None:
    connection.execute(insert(CLIENTS).values(name=name, served=0, leased_tasks=0))


def names(catalog: Catalog) -> list[str]:
    with catalog.read() as connection:
        return list(connection.execute(select(CLIENTS.c.name).order_by(CLIENTS.c.name)).scalars())


def setting(connection: Connection, name: str) -> str:
    return str(connection.execute(text(f"SHOW {name}")).scalar())


def test_transactions_are_what_we_say_whatever_the_server_prefers(catalog: Catalog, postgres: PostgresServer) -> None:
    assert postgres.execute("SHOW default_transaction_isolation") == [("serializable",)]
    with catalog.write() as connection:
        assert setting(connection, "transaction_isolation") == "read committed"
        assert setting(connection, "lock_timeout") == "30s"
        locks = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND database <> 0")
        assert connection.execute(locks).scalar() == 1
    with catalog.read() as connection:
        assert setting(connection, "transaction_isolation") == "repeatable read"
        assert setting(connection, "transaction_read_only") == "on"
        assert connection.execute(text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")).scalar() == 0


def test_a_writer_waits_for_the_lock_before_it_reads(catalog: Catalog, url: str, postgres: PostgresServer) -> None:
    second = Catalog.open(url)
    seen: list[list[str]] = []
    thread = threading.Thread(
        target=lambda: seen.append(second.run(lambda it: list(it.execute(select(CLIENTS.c.name)).scalars())))
    )
    with catalog.write() as connection:
        thread.start()
        while not locks_waited_for(postgres, url):
            time.sleep(0.01)
        add(connection)
    thread.join(timeout=PATIENCE_SECS)
    second.close()
    assert seen == [["a"]]


def test_two_databases_do_not_wait_for_each_other(catalog: Catalog, new_database: NewDatabase) -> None:
    other = Catalog.open(new_database(), busy_timeout_secs=0.2)
    with catalog.write():
        other.run(add)
    assert (names(other), names(catalog)) == (["a"], [])
    other.close()


@pytest.mark.slow
def test_schemas_of_one_database_are_catalogs_of_their_own(new_database: NewDatabase, postgres: PostgresServer) -> None:
    url = new_database(migrated=False)
    for name in ("one", "two"):
        postgres.execute(f"CREATE SCHEMA {name}", database_of(url))
        catalog = Catalog.open(f"{url}&options=-csearch_path%3D{name}")
        assert names(catalog) == []
        catalog.run(lambda connection, name=name: add(connection, name))  # type: ignore[misc]
        assert names(catalog) == [name]
        catalog.close()


def test_a_missing_schema_is_an_error(new_database: NewDatabase) -> None:
    with pytest.raises(InputError, match="no such schema") as caught:
        Catalog.open(f"{new_database(migrated=False)}&options=-csearch_path%3Dabsent")
    assert "CREATE SCHEMA" in caught.value.next_step


def test_a_deadlock_is_rolled_back_and_retried(
    catalog: Catalog, url: str, waits: list[float], postgres: PostgresServer
) -> None:
    catalog.run(lambda connection: [add(connection, name) for name in ("a", "b")])
    turn_up = "UPDATE clients SET served = served + 1 WHERE name = %s"
    holds, attempts = threading.Event(), []

    def other_writer() -> None:
        with postgres.connect(database_of(url)) as connection, connection.transaction():
            connection.execute("SET LOCAL deadlock_timeout = '1h'")
            connection.execute(turn_up, ["b"])
            holds.set()
            connection.execute(turn_up, ["a"])  # waits for ours, which waits for this one

    def action(connection: Connection) -> None:
        attempts.append(1)
        connection.execute(text("SET LOCAL deadlock_timeout = '20ms'"))
        connection.execute(update(CLIENTS).where(CLIENTS.c.name == "a").values(served=CLIENTS.c.served + 1))
        if len(attempts) == 1:
            thread.start()
            assert holds.wait(PATIENCE_SECS)
            blocked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            while postgres.execute(blocked) != [(1,)]:
                time.sleep(0.01)
        connection.execute(update(CLIENTS).where(CLIENTS.c.name == "b").values(served=CLIENTS.c.served + 1))

    thread = threading.Thread(target=other_writer)
    catalog.run(action)
    thread.join(timeout=PATIENCE_SECS)
    assert (len(attempts), len(waits)) == (2, 1)
    with catalog.read() as connection:
        assert connection.execute(select(CLIENTS.c.served)).scalars().all() == [2, 2]


def test_a_serialization_failure_is_rolled_back_and_retried(
    catalog: Catalog, url: str, waits: list[float], postgres: PostgresServer
) -> None:
    """A transaction that sees one moment, and a writer that knows nothing of our lock."""
    catalog.run(lambda connection: [add(connection, name) for name in ("a", "b")])
    strict = catalog._engine.execution_options(isolation_level="SERIALIZABLE", headrace_write=True)
    attempts: list[int] = []

    def action(connection: Connection) -> None:
        attempts.append(1)
        total = connection.execute(select(func.sum(CLIENTS.c.served))).scalar_one()
        if len(attempts) == 1:
            with postgres.connect(database_of(url)) as other, other.transaction():
                other.execute("SELECT sum(served) FROM clients")
                other.execute("UPDATE clients SET served = 5 WHERE name = 'b'")
        connection.execute(update(CLIENTS).where(CLIENTS.c.name == "b").values(served=int(total) + 1))

    catalog._writer = strict
    catalog.run(action)
    assert (len(attempts), len(waits)) == (2, 1)
    with catalog.read() as connection:
        assert connection.execute(select(CLIENTS.c.served).where(CLIENTS.c.name == "b")).scalar() == 6


def backend_of(connection: Connection) -> int:
    return int(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())


def test_a_connection_lost_inside_a_transaction_is_replaced(
    catalog: Catalog, waits: list[float], postgres: PostgresServer
) -> None:
    backends: list[int] = []

    def action(connection: Connection) -> str:
        backends.append(backend_of(connection))
        add(connection)
        if len(backends) < 3:
            postgres.execute(f"SELECT pg_terminate_backend({backends[-1]}, 10000)")
        connection.execute(text("SELECT 1"))
        return "done"

    assert catalog.run(action) == "done"
    assert len(set(backends)) == 3
    assert (len(waits), names(catalog)) == (2, ["a"])


def test_a_connection_that_idled_while_the_server_was_restarted_is_not_noticed(
    catalog: Catalog, waits: list[float], postgres: PostgresServer
) -> None:
    catalog.run(add)
    postgres.stop()
    with pytest.raises(CatalogLost) as caught, catalog.read():
        pass
    assert caught.value.exit_status == 5
    assert caught.value.next_step
    postgres.start()
    assert names(catalog) == ["a"]
    assert waits == []


@pytest.mark.slow
def test_workers_go_on_over_restarts_of_the_server(url: str, tmp_path: Path, postgres: PostgresServer) -> None:
    failures: list[BaseException] = []
    commits: list[bool] = []

    def toil(config: WarehouseConfig, name: str) -> None:
        try:
            with Warehouse.open(config) as warehouse:
                while tasks := lease_tasks(warehouse, name, limit=1):
                    commits.extend(
                        commit_memos(warehouse, [(task, pretended(f"memos/{task.lease}")) for task in tasks])
                    )
        except BaseException as error:
            failures.append(error)

    config = WarehouseConfig(str(tmp_path / "home"), url)
    with Warehouse.open(config) as warehouse:
        register_table(warehouse, "log", str(write_log(tmp_path / "log", hours=24, rows=3)))
        submit_model(warehouse, model(inputs=5))
        threads = [threading.Thread(target=toil, args=(config, f"w{i}")) for i in range(2)]
        for thread in threads:
            thread.start()
        for done in (20, 50, 80):
            while len(commits) < done and not failures:
                time.sleep(0.002)
            postgres.stop()
            postgres.start()
        for thread in threads:
            thread.join(timeout=PATIENCE_SECS)
        assert failures == []
        # A lease whose commit was in doubt may wait for its end: it is not lost, only late.
        with warehouse.catalog.read() as connection:
            of = schema.memos.c.state
            states = dict(connection.execute(select(of, func.count()).group_by(of)).all())
        assert sum(states.values()) == 24 * 5
        assert states["READY"] == sum(commits) == len(commits) >= 24 * 5 - 6
        assert len(ready_files(warehouse)) == states["READY"]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_commit_that_was_cut_off_is_in_doubt(url: str, postgres: PostgresServer, moment: Moment) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-proxy-", dir="/tmp")))
        proxy = stack.enter_context(severing(folder, postgres.folder))
        catalog = Catalog.open(url.replace(str(postgres.folder), str(folder)), sleep=lambda _: None)
        stack.callback(catalog.close)
        attempts: list[int] = []

        def action(connection: Connection, name: str) -> str:
            attempts.append(1)
            insert_absent(connection, CLIENTS, [{"name": name, "served": 0, "leased_tasks": 0}])
            return name

        proxy.sever = moment
        with pytest.raises(CommitInDoubt) as caught:
            catalog.run(lambda connection: action(connection, "once"))
        assert caught.value.exit_status == StorageError.exit_status
        assert "nothing was changed" not in str(caught.value)
        assert len(attempts) == 1
        assert names(catalog) == (["once"] if moment == "after" else [])

        proxy.sever = moment
        assert catalog.run(lambda connection: action(connection, "twice"), idempotent=True) == "twice"
        assert (len(attempts), proxy.severed) == (3, 2)
        assert names(catalog)[-1] == "twice"


@pytest.mark.parametrize("moment", ["before", "after"])
def test_operations_survive_commits_that_were_cut_off(
    url: str, tmp_path: Path, postgres: PostgresServer, moment: Moment
) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-proxy-", dir="/tmp")))
        proxy = stack.enter_context(severing(folder, postgres.folder))
        config = WarehouseConfig(str(tmp_path / "home"), url.replace(str(postgres.folder), str(folder)))
        warehouse = stack.enter_context(Warehouse.open(config))
        register_table(warehouse, "log", str(write_log(tmp_path / "log", hours=2)))
        proxy.sever = moment
        submitted = submit_model(warehouse, model(inputs=2))
        assert (submitted.version, submitted.queued + submitted.shared) == (1, 4)
        done = [(task, compute(warehouse, task)) for task in lease_tasks(warehouse, "w", limit=9)]
        proxy.sever = moment
        assert commit_memos(warehouse, done) == (True,) * 4
        assert len(ready_files(warehouse)) == 4
        assert proxy.severed == 2
        with warehouse.catalog.read() as connection:
            assert connection.execute(select(func.count()).select_from(schema.waits)).scalar() == 0


def raised_by(catalog: Catalog, statement: str) -> HeadraceError:
    with pytest.raises(HeadraceError) as caught:
        catalog.run(lambda connection: connection.execute(text(statement)))
    return caught.value


@pytest.mark.parametrize(
    ("state", "kind", "attempts"),
    [
        ("40001", CatalogConflict, 9),
        ("40P01", CatalogConflict, 9),
        ("55P03", CatalogBusy, 1),
        ("57014", CatalogBusy, 1),
        ("53100", StorageError, 1),
        ("53200", StorageError, 1),
        ("58030", StorageError, 1),
        ("25006", StorageError, 1),
        ("42501", StorageError, 1),
        ("22001", InputError, 1),
    ],
)
def test_what_a_server_says_by_its_state(
    catalog: Catalog, waits: list[float], state: str, kind: type[HeadraceError], attempts: int
) -> None:
    error = raised_by(catalog, f"DO $$ BEGIN RAISE EXCEPTION 'so it is' USING ERRCODE = '{state}'; END $$")
    assert type(error) is kind
    assert error.where == catalog.where
    assert "so it is" in str(error.value)
    assert error.next_step
    assert len(waits) == attempts - 1


def test_what_no_column_can_hold_is_the_input_s_fault(catalog: Catalog) -> None:
    assert isinstance(
        raised_by(catalog, f"INSERT INTO clients (name, served, leased_tasks) VALUES ('{'x' * 256}', 0, 0)"), InputError
    )
    assert isinstance(
        raised_by(catalog, "INSERT INTO clients (name, served, leased_tasks) VALUES ('x', 0, 9223372036854775807 + 1)"),
        InputError,
    )
    with pytest.raises(InputError, match="NUL"):
        catalog.run(lambda connection: add(connection, "a\0b"))


def test_a_defect_of_ours_stays_one(catalog: Catalog) -> None:
    with pytest.raises(Exception, match="no_such_table") as caught:
        catalog.run(lambda connection: connection.execute(text("SELECT * FROM no_such_table")))
    assert not isinstance(caught.value, HeadraceError)


SECRET = "sEsAmE"


def test_urls_that_lead_nowhere(url: str, postgres: PostgresServer) -> None:
    postgres.execute(f"CREATE ROLE guarded LOGIN PASSWORD '{SECRET}-right'")
    database = database_of(url)
    wrong: dict[str, type[HeadraceError]] = {
        postgres.url("no_such_database"): InputError,
        postgres.url(database, "no_such_user"): InputError,
        postgres.url(database, "guarded"): InputError,
        postgres.url(database, "guarded", SECRET): InputError,
        f"{postgres.url(database, 'guarded')}&password={SECRET}": InputError,
        f"{url}&no_such_option=1": InputError,
        f"{url}&sslmode=no_such_mode": InputError,
        f"postgresql://me:{SECRET}@127.0.0.1:1/catalog": CatalogLost,
        f"postgresql://me:{SECRET}@127.0.0.1:port/catalog": InputError,
        f"postgresql://me:a@{SECRET}@127.0.0.1/catalog": InputError,
        f"postgresql+psycopg2://me:{SECRET}@127.0.0.1/catalog": InputError,
        f"mysql://me:{SECRET}@127.0.0.1/catalog": InputError,
        postgres.url(database, "guarded", f"{SECRET}-right"): StorageError,  # no rights in the schema
    }
    for given, kind in wrong.items():
        with pytest.raises(HeadraceError) as caught:
            Catalog.open(given, busy_timeout_secs=2)
        assert type(caught.value) is kind, (given, caught.value)
        assert SECRET not in str(caught.value)
        assert SECRET not in str(caught.value.__cause__)
        assert caught.value.where or caught.value.value
        assert caught.value.next_step or caught.value.allowed
    config = WarehouseConfig("home", f"postgresql://me:{SECRET}@127.0.0.1/catalog")
    assert SECRET not in repr(config)


def test_no_connection_left(url: str, postgres: PostgresServer) -> None:
    held: list[psycopg.Connection[object]] = []
    try:
        with contextlib.suppress(psycopg.OperationalError):
            while True:
                held.append(postgres.connect())
        with pytest.raises(CatalogFull, match="no connection left"):
            Catalog.open(url, busy_timeout_secs=0.1)
        waits: list[float] = []

        def sleep(secs: float) -> None:
            waits.append(secs)
            if len(waits) == 3:
                held.pop().close()
            time.sleep(0.05)  # the server takes a moment to notice

        catalog = Catalog.open(url, busy_timeout_secs=3600, sleep=sleep)
        assert len(waits) >= 3
        assert names(catalog) == []
        catalog.close()
    finally:
        for connection in held:
            connection.close()


def test_opening_waits_while_the_server_is_restarted(url: str, postgres: PostgresServer) -> None:
    Catalog.open(url).close()
    postgres.stop()
    waits: list[float] = []

    def sleep(secs: float) -> None:
        waits.append(secs)
        if len(waits) == 2:
            postgres.start()

    try:
        Catalog.open(url, sleep=sleep).close()
    finally:
        if len(waits) < 2:
            postgres.start()
    assert len(waits) >= 2


@pytest.mark.slow
def test_a_worker_that_starts_while_the_server_is_restarted_waits(
    url: str, tmp_path: Path, postgres: PostgresServer
) -> None:
    config = WarehouseConfig(str(tmp_path / "home"), url)
    with Warehouse.open(config) as warehouse:
        register_table(warehouse, "log", str(write_log(tmp_path / "log", hours=1)))
    postgres.stop()
    try:
        environment = {**os.environ, "HEADRACE_CATALOG_URL": url, "HEADRACE_BUSY_TIMEOUT_SECS": "0"}
        command = [sys.executable, "-m", "headrace", "work", "--until-idle", "--home", config.home]
        with subprocess.Popen(
            command, cwd=REPOSITORY, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as worker:
            assert worker.stderr is not None
            assert "cannot be reached" in worker.stderr.readline()
            postgres.start()
            said, rest = worker.communicate(timeout=300)
    finally:
        if postgres.is_stopped:
            postgres.start()
    assert worker.returncode == 0, rest
    assert said == "nothing was queued\n"


def test_the_server_ends_an_idle_transaction(url: str, postgres: PostgresServer) -> None:
    catalog = Catalog.open(url)
    with catalog.read() as connection:
        assert setting(connection, "idle_in_transaction_session_timeout") == f"{IDLE_TRANSACTION_SECS // 60}min"
    still = Catalog.open(f"{url}&options=-cidle_in_transaction_session_timeout%3D300")

    def stand_still() -> None:
        with still.write() as connection:
            assert setting(connection, "idle_in_transaction_session_timeout") == "300ms"
            catalog.run(add)  # gets the lock when the server ends the other one
            connection.execute(select(CLIENTS.c.name))

    with pytest.raises(CatalogLost):
        stand_still()
    assert names(catalog) == ["a"]
    for each in (catalog, still):
        each.close()


_WITHOUT_DRIVER = """
import sys
sys.modules["psycopg"] = None
from transforms.errors import InputError
from warehouse.catalog.catalog import Catalog
try:
    Catalog.open("postgresql://me:secret@127.0.0.1/catalog")
except InputError as error:
    print(error)
"""


def test_a_missing_driver_error_names_the_package() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_DRIVER], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert "pip install 'headrace[postgres]'" in done.stdout
    assert "secret" not in done.stdout


def test_strings_compare_by_bytes_and_prefixes_use_the_index(url: str, tmp_path: Path) -> None:
    with Warehouse.open(WarehouseConfig(str(tmp_path / "home"), url)) as warehouse:
        for name in ("b", "a", "B", "_", "é"):
            warehouse.catalog.run(lambda connection, name=name: add(connection, name))  # type: ignore[misc]
        assert names(warehouse.catalog) == ["B", "_", "a", "b", "é"]
        register_table(warehouse, "log", str(write_log(tmp_path / "log", hours=1)))
        submit_model(warehouse, model(inputs=5))
        first = search_components(warehouse).components[0]
        query = ComponentQuery(fingerprint=first.fingerprint[:12])
        assert search_components(warehouse, query).components == (first,)
        with warehouse.catalog.read() as connection:
            connection.execute(text("SET LOCAL enable_seqscan = off"))
            plan = connection.execute(text("EXPLAIN SELECT 1 FROM components WHERE fingerprint LIKE 'ab%'")).scalars()
            assert any("Index Cond" in line for line in plan)
