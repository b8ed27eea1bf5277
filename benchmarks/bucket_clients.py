"""obstore and ``pyarrow.fs`` on the same server of the S3 API, with a delay before each request: ``python -m benchmarks.bucket_clients``.

Headrace reads S3 and Azure by obstore through :class:`warehouse.storage.storage.Storage`. Rounds alternate; the best and the median of
each side are printed with the ratio of the medians.
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from tests.support.fault_proxy import proxied
from tests.support.s3_server import running
from warehouse.storage.storage import Storage
from warehouse.tables.parquet import read_columns
from warehouse.tables.table import Fragment

ROWS, COLUMNS, GROUPS, OBJECTS, SMALL = 300_000, 20, 8, 200, 20


@contextmanager
def delayed(server: str, delay_secs: float) -> Iterator[str]:
    """An address that answers as ``server`` does, each request later."""
    with proxied(server, keeps_host=True) as proxy:
        action = proxy.action

        def wait(request: str) -> Any:
            time.sleep(delay_secs)
            return action(request)

        proxy.action = wait  # type: ignore[method-assign]
        yield proxy.address


def fill(storage: Storage, bucket: str) -> None:
    """A Parquet file, an object of 32 MB, and small ones."""
    draws = np.random.default_rng(0)
    table = pa.table({f"c{index}": draws.integers(0, 1 << 40, ROWS) for index in range(COLUMNS)})
    content = io.BytesIO()
    pq.write_table(table, content, row_group_size=ROWS // GROUPS)
    storage.write_atomic(f"s3://{bucket}/x.parquet", content.getvalue())
    storage.write_atomic(f"s3://{bucket}/big", bytes(32 << 20))
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda one: storage.write_atomic(f"s3://{bucket}/many/{one % 50}/{one}", b"x" * 1000), range(OBJECTS)
            )
        )


def of_storage(storage: Storage, bucket: str) -> dict[str, Callable[[], object]]:
    """What is measured, by Headrace's storage."""
    root = f"s3://{bucket}"
    fragment = Fragment("0" * 64, f"{root}/x.parquet", (0, 1, 2), 3 * ROWS // GROUPS, 0, {})
    return {
        "3 of 20 columns, 3 of 8 row groups": lambda: read_columns(storage, fragment, ["c1", "c7", "c9"]),
        "all of a Parquet file": lambda: pq.ParquetFile(
            storage.open_input(f"{root}/x.parquet"), pre_buffer=True
        ).read(),
        "an object of 32 MB": lambda: storage.read_bytes(f"{root}/big"),
        f"a listing of {OBJECTS}": lambda: storage.list(f"{root}/many"),
        f"{SMALL} small reads": lambda: [storage.read_bytes(f"{root}/many/{one % 50}/{one}") for one in range(SMALL)],
        f"{SMALL} looks": lambda: [storage.exists(f"{root}/many/{one % 50}/{one}") for one in range(SMALL)],
        f"{SMALL} small writes": lambda: [storage.write_atomic(f"{root}/w/{one}", b"x" * 1000) for one in range(SMALL)],
    }


def of_arrow(files: Any, bucket: str) -> dict[str, Callable[[], object]]:
    """The same by ``pyarrow.fs``."""

    def write(one: int) -> None:
        with files.open_output_stream(f"{bucket}/w/{one}") as output:
            output.write(b"x" * 1000)

    def columns() -> object:
        with files.open_input_file(f"{bucket}/x.parquet") as source:
            return pq.ParquetFile(source, pre_buffer=True).read_row_groups([0, 1, 2], columns=["c1", "c7", "c9"])

    return {
        "3 of 20 columns, 3 of 8 row groups": columns,
        "all of a Parquet file": lambda: pq.ParquetFile(
            files.open_input_file(f"{bucket}/x.parquet"), pre_buffer=True
        ).read(),
        "an object of 32 MB": lambda: files.open_input_file(f"{bucket}/big").read(),
        f"a listing of {OBJECTS}": lambda: files.get_file_info(pafs.FileSelector(f"{bucket}/many", recursive=True)),
        f"{SMALL} small reads": lambda: [
            files.open_input_file(f"{bucket}/many/{one % 50}/{one}").read() for one in range(SMALL)
        ],
        f"{SMALL} looks": lambda: [files.get_file_info(f"{bucket}/many/{one % 50}/{one}") for one in range(SMALL)],
        f"{SMALL} small writes": lambda: [write(one) for one in range(SMALL)],
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay-ms", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with running() as server, delayed(server.address, options.delay_ms / 1000) as address:
        os.environ.update(server.environment)
        bucket = server.bucket()
        fill(Storage("/"), bucket)
        os.environ["AWS_ENDPOINT_URL"] = f"http://{address}"
        files = pafs.S3FileSystem(endpoint_override=address, scheme="http", region="us-east-1")
        sides = {
            "obstore": of_storage(Storage(f"s3://{bucket}?endpoint_override={address}&scheme=http"), bucket),
            "pyarrow.fs": of_arrow(files, bucket),
        }
        print(f"{options.delay_ms:g} ms before each request; best and median of {options.rounds} rounds, ms")
        for what in sides["obstore"]:
            taken: dict[str, list[float]] = {side: [] for side in sides}
            for _ in range(options.rounds):
                for side, measured in sides.items():
                    begin = time.perf_counter()
                    measured[what]()
                    taken[side].append((time.perf_counter() - begin) * 1000)
            medians = {side: statistics.median(times) for side, times in taken.items()}
            text = "  ".join(f"{side} {min(times):7.0f} {medians[side]:7.0f}" for side, times in taken.items())
            print(f"{what:36} {text}  ratio {medians['obstore'] / medians['pyarrow.fs']:.2f}", flush=True)


if __name__ == "__main__":
    main()
