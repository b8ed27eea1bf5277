"""A local Flink session cluster: one job manager and two task managers, each a process."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.flink.install import JOB_SERVER, LIB
from tests.support.processes import PATIENCE_SECS, end, free_port, start, wait_until

TASK_MANAGERS = 2
# What Flink's own start scripts give a Java of these days.
_OPENED = ("lang", "net", "io", "nio", "text", "time", "util", "util.concurrent", "util.concurrent.atomic",
           "util.concurrent.locks", "lang.reflect")  # fmt: skip
JAVA = ("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
        *(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED),
        "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED", "--add-exports=java.base/sun.net.util=ALL-UNNAMED")  # fmt: skip
_JOB_MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
_TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
_LOGGING = """
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = Console
appender.console.name = Console
appender.console.type = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss,SSS} %-5p %c{1} %m%n
"""


def settings(rpc_port: int, rest_port: int, temporary: Path) -> dict[str, object]:
    """Flink's configuration: one slot's work a task manager while both live, all of it on one when the other is lost."""
    local = "127.0.0.1"
    return {
        "jobmanager.rpc.address": local, "jobmanager.rpc.port": rpc_port, "jobmanager.bind-host": local,
        "rest.address": local, "rest.bind-address": local, "rest.port": rest_port, "rest.bind-port": rest_port,
        "taskmanager.host": local, "taskmanager.bind-host": local,
        "taskmanager.numberOfTaskSlots": 2, "taskmanager.load-balance.mode": "SLOTS",
        "taskmanager.cpu.cores": 2.0,
        "taskmanager.memory.framework.heap.size": "96m", "taskmanager.memory.task.heap.size": "96m",
        "taskmanager.memory.framework.off-heap.size": "64m", "taskmanager.memory.task.off-heap.size": "64m",
        "taskmanager.memory.network.min": "32m", "taskmanager.memory.network.max": "32m",
        "taskmanager.memory.managed.size": "32m", "taskmanager.memory.jvm-metaspace.size": "256m",
        "taskmanager.memory.jvm-overhead.min": "64m", "taskmanager.memory.jvm-overhead.max": "64m",
        "restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": 3,
        "restart-strategy.fixed-delay.delay": "1 s",
        "heartbeat.interval": 1000, "heartbeat.timeout": 30000,
        "io.tmp.dirs": temporary, "blob.storage.directory": temporary,
    }  # fmt: skip


@dataclass(frozen=True)
class FlinkCluster:
    """``address``: host:port of its REST interface, which is what ``--flink_master`` names."""

    address: str
    folder: Path
    job_manager: subprocess.Popen[bytes]
    task_managers: tuple[subprocess.Popen[bytes], ...]

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://{self.address}/{path}", timeout=PATIENCE_SECS) as answer:
            return json.load(answer)

    def task_managers_known(self) -> int:
        try:
            return int(self.ask("overview")["taskmanagers"])
        except (urllib.error.URLError, OSError):
            return -1

    def logs(self) -> str:
        """The end of every log, for a test that failed."""
        return "\n".join(
            f"== {log.name}\n{log.read_text(errors='replace')[-3000:]}" for log in self.folder.glob("*.log")
        )

    @contextmanager
    def job_server(self) -> Iterator[str]:
        """Beam's job server before this cluster; its host:port."""
        port, log = free_port(), self.folder / "job-server.log"
        command = [*JAVA, "-Xmx192m", "-jar", str(JOB_SERVER), f"--flink-master={self.address}", f"--job-port={port}",
                   "--artifact-port=0", "--expansion-port=0", f"--artifacts-dir={self.folder / 'artifacts'}"]  # fmt: skip
        process = start(command, log)
        try:
            wait_until(lambda: "Job server now running" in log.read_text(), "the job server runs", {"it": process})
            yield f"localhost:{port}"
        finally:
            end(process)


@contextmanager
def running(folder: Path) -> Iterator[FlinkCluster]:
    """The cluster, its configuration, logs and files in ``folder``; every process of it is gone at the end."""
    conf, temporary = folder / "conf", folder / "tmp"
    conf.mkdir(parents=True)
    temporary.mkdir()
    rest_port = free_port()
    lines = (f"{key}: {value}\n" for key, value in settings(free_port(), rest_port, temporary).items())
    (conf / "flink-conf.yaml").write_text("".join(lines))
    (conf / "log4j.properties").write_text(_LOGGING)
    classes = ":".join(str(jar) for jar in sorted(LIB.glob("*.jar")))
    java = [*JAVA, "-Xmx224m", "-XX:MaxDirectMemorySize=192m", f"-Dlog4j2.configurationFile=file:{conf}/log4j.properties",
            f"-Djava.io.tmpdir={temporary}", "-cp", classes]  # fmt: skip
    started: dict[str, subprocess.Popen[bytes]] = {}
    try:
        started["job manager"] = start([*java, _JOB_MANAGER, "--configDir", str(conf)], folder / "job-manager.log")
        for number in range(TASK_MANAGERS):
            log = folder / f"task-manager-{number}.log"
            started[f"task manager {number}"] = start([*java, _TASK_MANAGER, "--configDir", str(conf)], log)
        job_manager, *task_managers = started.values()
        cluster = FlinkCluster(f"127.0.0.1:{rest_port}", folder, job_manager, tuple(task_managers))
        wait_until(lambda: cluster.task_managers_known() == TASK_MANAGERS, "the task managers are known", started)
        yield cluster
    finally:
        for process in started.values():
            end(process)
        shutil.rmtree(temporary, ignore_errors=True)
