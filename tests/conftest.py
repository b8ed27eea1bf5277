"""Fixtures for the tests of every package."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.support.examples import THOROUGH
from tests.support.kept_kernels import remove_old_shared_kernels, share_kernels

if TYPE_CHECKING:
    from tests.support.gcs_server import GcsServer
    from tests.support.postgresql import PostgresServer
    from tests.support.s3_server import S3Server

# The speed of the machine fails no test. Fixtures that are made once a test serve many examples on purpose.
# ``tests/test_speed.py`` holds other files to these profiles; ``tests/support/examples.py`` scales numbers of examples.
# ``quick`` reports the first failing example as it is: making it smaller can take minutes of a slow property. ``thorough`` shrinks.
_WITHOUT_SHRINKING = tuple(phase for phase in Phase if phase not in (Phase.shrink, Phase.explain))
for profile, examples, phases in (("quick", THOROUGH // 2, _WITHOUT_SHRINKING), ("thorough", THOROUGH, tuple(Phase))):
    settings.register_profile(
        profile,
        max_examples=examples,
        phases=phases,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
settings.load_profile("quick")

# Processes of tests and their children compile a module once, though the environment may ask for no files of bytecode.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
share_kernels(os.environ)

#: Objects between two garbage collections; Python's 700 cost an eighth of the CPU time of tests.
_COLLECTED_AFTER = 50_000

ROOT = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--catalog=postgresql``: tests that take the fixture ``catalog_url`` use a real server."""
    parser.addoption("--catalog", choices=("sqlite", "postgresql"), default="sqlite", help="where catalogs stand")


def pytest_configure(config: pytest.Config) -> None:
    """Collect garbage seldom, and give TensorFlow one thread before any other test starts it with more.

    Deterministic training asks for one thread. TensorFlow is loaded where tests of all rooms run in one process: in the workers of
    pytest-xdist, and when no files are named. The process that only waits for workers does without it.
    """
    gc.set_threshold(_COLLECTED_AFTER, *gc.get_threshold()[1:])
    has_workers = bool(config.getoption("tx", default=None))
    runs_all = hasattr(config, "workerinput") or (config.args == config.getini("testpaths") and not has_workers)
    if runs_all and find_spec("tensorflow") is not None:  # Python 3.14 has none yet
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        import pyarrow.compute  # noqa: F401 - before TensorFlow, whose older RE2 Arrow's regular expressions would get
        import tensorflow as tf

        tf.config.threading.set_inter_op_parallelism_threads(1)
        tf.config.threading.set_intra_op_parallelism_threads(1)


def pytest_collection_finish() -> None:
    """Leave out of garbage collection what stays to the end: tests, and the modules that they import."""
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let the end of the process free all objects, as extensions expect that look for leaks. Remove kernels that no test needs any more."""
    gc.unfreeze()
    if not hasattr(session.config, "workerinput"):
        remove_old_shared_kernels()


@pytest.fixture(scope="session", autouse=True)
def in_front() -> None:
    """Processes that tests start and interrupt hear Ctrl-C, even where a shell runs the tests in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def own_log_handlers() -> Iterator[None]:
    """What a command of a test writes its log to is not there any more for the next one."""
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    for one in logging.root.handlers[:]:
        if one not in handlers:
            logging.root.removeHandler(one)
    logging.root.setLevel(level)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real logs beside the checkout; a test that needs it is skipped where it is absent."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no real logs beside this checkout")
    return folder


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server: one for each process of tests, started when it is first asked for."""
    from tests.support.postgresql import running

    with running() as server:
        yield server


@pytest.fixture
def new_database(request: pytest.FixtureRequest) -> Iterator[Callable[..., str]]:
    """Makes databases, with Headrace's tables or (``migrated=False``) empty; returns their URLs, drops them at the end."""
    server: PostgresServer = request.getfixturevalue("postgres")
    made: list[str] = []

    def make(*, migrated: bool = True) -> str:
        made.append(server.database(migrated=migrated))
        return made[-1]

    yield make
    for url in made:
        server.drop(url)


@pytest.fixture
def catalog_url(request: pytest.FixtureRequest) -> str:
    """A catalog of the database that ``--catalog`` names; empty: SQLite in the warehouse's home."""
    if request.config.getoption("--catalog") == "sqlite":
        return ""
    url: str = request.getfixturevalue("new_database")()
    return url


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[GcsServer]:
    """A server of the Google Cloud Storage API."""
    from tests.support.gcs_server import running

    with running() as server:
        yield server


@pytest.fixture(scope="session")
def running_s3() -> Iterator[S3Server]:
    """A server of the S3 API."""
    from tests.support.s3_server import running

    with running() as server:
        yield server


@pytest.fixture
def s3_server(running_s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """A server of the S3 API, which the environment names with its credentials."""
    for variable, value in running_s3.environment.items():
        monkeypatch.setenv(variable, value)
    return running_s3
