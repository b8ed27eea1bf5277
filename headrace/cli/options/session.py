"""The options of every command: the warehouse and the output. Only this module reads the environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from transforms.errors import InputError

if TYPE_CHECKING:
    from trainer.wire.flight.addresses import Address
    from warehouse.settings import Settings
    from warehouse.warehouse import Warehouse

HOME_HELP = (
    "Folder of the warehouse: catalog, memos, runs; or gs:// or s3://bucket/path, and $HEADRACE_CATALOG_URL for the catalog. "
    "Default: $HEADRACE_HOME, or .headrace in this folder."
)

Home = Annotated[str, typer.Option("--home", help=HOME_HELP, show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")]


def home_text(option: str) -> str:
    """The home of a command as it is named: the option, else ``$HEADRACE_HOME``, else ``.headrace``."""
    return option or os.environ.get("HEADRACE_HOME", "") or ".headrace"


def catalog_text() -> str:
    """The URL of the catalog in the environment; empty without one."""
    return os.environ.get("HEADRACE_CATALOG_URL", "")


def cluster_address() -> Address:
    """The API server of the cluster in which this process is a pod. Raises :class:`InputError` elsewhere."""
    from trainer.wire.flight.addresses import Address

    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    if not host or not port.isascii() or not port.isdigit():
        raise InputError("--jobset needs a process in a pod", where="$KUBERNETES_SERVICE_HOST, $KUBERNETES_SERVICE_PORT",
                         value=f"{host}:{port}", next_step="leave --jobset out elsewhere")  # fmt: skip
    return Address(host, int(port))


def home_location(option: str) -> str:
    """The home of a command: the option, else ``$HEADRACE_HOME``, else ``.headrace``.

    A home in a bucket is on the emulator in ``$STORAGE_EMULATOR_HOST``, of S3 on the server in ``$AWS_ENDPOINT_URL``, unless it
    has an endpoint of its own.
    """
    from warehouse.storage.locations import at_emulator, is_gcs, is_uri
    from warehouse.storage.object_locations import at_endpoint, is_s3

    home = home_text(option)
    if is_gcs(home):
        return at_emulator(home, os.environ.get("STORAGE_EMULATOR_HOST", ""))
    if is_s3(home):
        return at_endpoint(home, os.environ.get("AWS_ENDPOINT_URL", ""))
    if is_uri(home):
        raise InputError("the home must be a folder or a bucket", where="--home or $HEADRACE_HOME", value=home,
                         allowed="a local folder, gs://bucket/path, or s3://bucket/path")  # fmt: skip
    return os.path.abspath(home)


def run_location(run_dir: str) -> str:
    """A run directory: a folder, or ``gs://bucket/path``, which is on the emulator as :func:`home_location` says."""
    from warehouse.storage.locations import at_emulator, is_gcs, is_uri

    if is_gcs(run_dir):
        return at_emulator(run_dir, os.environ.get("STORAGE_EMULATOR_HOST", ""))
    if is_uri(run_dir):
        raise InputError("a run directory must be a folder or in a bucket", where="the run directory", value=run_dir,
                         allowed="a local folder, or gs://bucket/path")  # fmt: skip
    return run_dir


def home_folder(option: str, what: str, *, creates: bool = False) -> str:
    """The home, which must be a local folder for ``what``, and exist unless the command ``creates`` it. Raises :class:`InputError`."""
    from warehouse.homes import check_folder

    home = home_location(option)
    if "://" in home:
        raise InputError(f"the home must be a local folder for {what}", where="--home or $HEADRACE_HOME", value=home,
                         next_step="give a folder of this machine")  # fmt: skip
    if not creates:
        check_folder(home)
    return home


#: Opens a warehouse, possibly with retries.
Opening = Callable[[Callable[[], "Warehouse"]], "Warehouse"]


def open_once(opened: Callable[[], Warehouse]) -> Warehouse:
    """Open the warehouse without retries."""
    return opened()


@contextmanager
def open_warehouse(
    option: str, opening: Opening = open_once, *, creates: bool = False, read_secs: float | None = None
) -> Iterator[Warehouse]:
    """The warehouse at :func:`home_location`, closed at the end; only a command that ``creates`` one makes it.

    ``read_secs``: the longest time of a read of its catalog; None: no limit.

    Its settings are those of :func:`warehouse_settings`. Raises :class:`InputError` for a home that is not a warehouse.
    """
    from warehouse.homes import check_exists, make_home
    from warehouse.warehouse import Warehouse

    config = warehouse_settings(option).config
    if creates:
        make_home(config)
    else:
        check_exists(config)
    with opening(lambda: Warehouse.open(config, read_secs=read_secs)) as warehouse:
        if not config.lineage:
            yield warehouse
            return
        from headrace.lineage.sender import sending_lineage

        with sending_lineage(warehouse):
            yield warehouse


def warehouse_settings(option: str) -> Settings:
    """The settings of the warehouse at :func:`home_location`: of the environment, of ``headrace.toml`` in it, and defaults. Raises :class:`InputError`."""
    from warehouse.settings import settings_of

    return settings_of(home_location(option), {}, os.environ)
