"""A local Spark cluster: a master and two workers, each a process, which start executors."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.spark.install import FOLDER, JARS, JOB_SERVER, SCALA
from tests.support.processes import PATIENCE_SECS, end, free_port, is_listening, start, wait_until

WORKERS = 2
# What Beam's Python side gives a job server that it starts.
_OPENED = ("java.lang.invoke", "java.nio", "java.util", "sun.nio.ch")
JAVA = ("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED))  # fmt: skip
# A driver, which the job server is, takes no less.
DRIVER = ("-Xmx512m", "-Dspark.executor.memory=512m", "-Dspark.ui.enabled=false")
ENVIRONMENT = {"SPARK_HOME": str(FOLDER), "SPARK_SCALA_VERSION": SCALA, "SPARK_LOCAL_IP": "127.0.0.1"}


@contextmanager
def job_server(master: str, folder: Path) -> Iterator[str]:
    """Beam's job server before ``master``, ``local[2]`` or ``spark://host:port``; its host:port."""
    port, log = free_port(), folder / "job-server.log"
    command = [*JAVA, *DRIVER, "-jar", str(JOB_SERVER), f"--spark-master-url={master}", f"--job-port={port}",
               "--artifact-port=0", "--expansion-port=0", f"--artifacts-dir={folder / 'artifacts'}"]  # fmt: skip
    process = start(command, log, ENVIRONMENT)
    try:
        wait_until(lambda: is_listening(port), "the job server runs", {"it": process})
        yield f"localhost:{port}"
    finally:
        end(process)


@dataclass(frozen=True)
class SparkCluster:
    """``address``: what ``--spark_master_url`` names."""

    address: str
    status_port: int
    folder: Path

    def ask(self) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.status_port}/json/", timeout=PATIENCE_SECS) as answer:
            return json.load(answer)

    def workers_known(self) -> int:
        try:
            return int(self.ask()["aliveworkers"])
        except (urllib.error.URLError, OSError):
            return -1

    def logs(self) -> str:
        """The end of every log, for a test that failed."""
        found = [*self.folder.glob("*.log"), *self.folder.glob("work-*/*/*/std*")]
        return "\n".join(f"== {log}\n{log.read_text(errors='replace')[-3000:]}" for log in found)


@contextmanager
def running(folder: Path) -> Iterator[SparkCluster]:
    """The cluster, its logs and files in ``folder``; every process of it is gone at the end."""
    port, status_port = free_port(), free_port()
    address, host = f"spark://127.0.0.1:{port}", ["--host", "127.0.0.1"]
    java = [*JAVA, "-Xmx192m", "-cp", f"{JARS}/*"]
    cluster = SparkCluster(address, status_port, folder)
    commands = {"master": [*java, "org.apache.spark.deploy.master.Master", *host, "--port", str(port),
                           "--webui-port", str(status_port)]}  # fmt: skip
    for number in range(WORKERS):
        commands[f"worker-{number}"] = [
            *java, "org.apache.spark.deploy.worker.Worker", *host, "--webui-port", "0", "--cores", "1",
            "--memory", "512m", "--work-dir", str(folder / f"work-{number}"), address]  # fmt: skip
    started = {}
    try:
        for name, command in commands.items():
            started[name] = start(command, folder / f"{name}.log", ENVIRONMENT)
        wait_until(lambda: cluster.workers_known() == WORKERS, "Spark's workers are known", started)
        yield cluster
    finally:
        for process in started.values():
            end(process)
        for work in folder.glob("work-*"):  # every executor has got all jars
            shutil.rmtree(work)
