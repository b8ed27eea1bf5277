"""The script that ``headrace train --launcher tpu-vm`` writes, run with programs in place of gcloud and docker."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.main import run
from tests.headrace.launchers.test_manifests import check_golden
from tests.support.processes import PATIENCE_SECS

BASE = ["train", "ctr", "--version", "3", "--launcher", "tpu-vm", "--job-name", "ctr", "--topology", "v5p:2x2x2", "--readers", "3",
        "--images", "europe-west4-docker.pkg.dev/project/headrace:1.2.3", "--home", "gs://bucket/home", "--run-dir", "gs://bucket/it's",
        "--zone", "us-east5-a"]  # fmt: skip

#: Records its arguments, and does on this machine what gcloud does on others: ``ssh`` runs a command in the home of each machine.
GCLOUD = """
import json, os, pathlib, shutil, subprocess, sys
state = pathlib.Path(os.environ["STATE"])
arguments = sys.argv[1:]
with open(state / "calls.jsonl", "a") as calls:
    calls.write(json.dumps(arguments) + "\\n")
if arguments[:3] == ["auth", "configure-docker", "--quiet"]:
    sys.exit()
assert arguments[:3] == ["compute", "tpus", "tpu-vm"], arguments
verb, rest = arguments[3], arguments[4:]
options = dict(one[2:].partition("=")[::2] for one in rest if one.startswith("--"))
machines = [0, 1] if options.get("worker") == "all" else [0]
if verb == "describe":
    if not (state / "made").exists():
        sys.exit("there is no such slice")
    addresses = {"value(networkEndpoints[0].ipAddress)": "10.0.0.1", "value(networkEndpoints[].ipAddress)": "10.0.0.1;10.0.0.2"}
    print(addresses.get(options["format"]) or (state / "made").read_text() or "READY")
elif verb == "create":
    (state / "made").touch()
elif verb == "delete":
    (state / "made").unlink()
elif verb == "scp":
    source = pathlib.Path(next(one for one in rest if not one.startswith("--")))
    assert "recurse" in options
    for machine in machines:
        shutil.copytree(source, state / f"machine-{machine}" / source.name)
elif verb == "ssh":
    for machine in machines:
        home = state / f"machine-{machine}"
        home.mkdir(exist_ok=True)
        environment = {**os.environ, "HOME": str(home), "MACHINE": str(machine)}
        done = subprocess.run(["bash", "-c", options["command"]], cwd=home, env=environment)
        if done.returncode:
            sys.exit(done.returncode)
"""
DOCKER = """
import json, os, pathlib, sys
with open(pathlib.Path(os.environ["STATE"]) / "containers.jsonl", "a") as calls:
    if sys.argv[1] == "run":
        calls.write(json.dumps([int(os.environ["MACHINE"]), sys.argv[2:]]) + "\\n")
if sys.argv[1] == "wait":
    print(os.environ["STATUS"])
if sys.argv[1] == "ps":
    print("earlier-1")
"""
CURL = "import os; print(os.environ['MACHINE'], end='')"
HOSTNAME = "import os; print(f\"10.0.0.{1 + int(os.environ['MACHINE'])} 172.17.0.1 \")"


def script(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    capsys.readouterr()
    assert run([*BASE, *options]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def run_script(folder: Path, text: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a script; what it did is in ``folder``."""
    programs = folder / "programs"
    programs.mkdir()
    for name, code in (("gcloud", GCLOUD), ("docker", DOCKER), ("curl", CURL), ("hostname", HOSTNAME)):
        (programs / f"{name}.py").write_text(code)
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {programs}/{name}.py "$@"\n')
        (programs / name).chmod(0o755)
    (programs / "sudo").write_text('#!/bin/sh\nexec "$@"\n')
    (programs / "sudo").chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "STATE": str(folder), "STATUS": str(status),
                   "HEADRACE_CATALOG_URL": "postgresql://user:pass'word@10.1.2.3/headrace"}  # fmt: skip
    return subprocess.run(
        ["bash", "-s"], input=text, text=True, capture_output=True, env=environment, timeout=PATIENCE_SECS
    )


def lines(path: Path) -> list[Any]:
    return [json.loads(one) for one in path.read_text().splitlines()]


def test_the_script_of_a_slice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = tmp_path / "options.json"
    options.write_text('{"batch_rows": 4096}')
    text = script(capsys, "--config", str(options), "--spot", "--project", "my-project", "--epoch-secs", "600")
    check_golden("launch_tpu_vm.sh", text)


@pytest.mark.parametrize("options", [[], ["--tpu", "local"]], ids=str)
def test_shellcheck_finds_nothing(options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = shutil.which("shellcheck") or str(Path(sys.executable).with_name("shellcheck"))
    if not Path(program).exists():
        pytest.skip("no shellcheck")
    text = script(capsys, *options)
    inner = text.split("<<'END_OF_MACHINE'\n")[1].split("END_OF_MACHINE\n")[0]
    for name, content in (("script.sh", text), ("machine.sh", f"#!/usr/bin/env bash\n{inner}")):
        (tmp_path / name).write_text(content)
        done = subprocess.run([program, str(tmp_path / name)], capture_output=True, text=True)
        assert done.stdout == ""


def test_the_script_starts_each_role_on_its_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = run_script(tmp_path, script(capsys, "--baseline", "a $HOME \"b\" 'c' `d` $(POD_IP)"))
    assert done.returncode == 0, done.stderr
    verbs = [one[3] for one in lines(tmp_path / "calls.jsonl") if one[0] == "compute"]
    assert verbs == ["describe", "create", "describe", "ssh", "scp", "ssh", "ssh", "ssh", "delete"]
    created = next(one for one in lines(tmp_path / "calls.jsonl") if "create" in one)
    assert created[4:] == ["ctr", "--zone=us-east5-a", "--type=v5p", "--topology=2x2x2", "--version=v2-alpha-tpuv5",
                           "--scopes=cloud-platform"]  # fmt: skip
    assert not (tmp_path / "made").exists(), "the slice is deleted"
    image = "europe-west4-docker.pkg.dev/project/headrace/headrace-"
    commands = {}
    for machine, words in lines(tmp_path / "containers.jsonl"):
        place = next(k for k, one in enumerate(words) if one.startswith(image))
        commands[words[words.index("--name") + 1]] = (machine, words[place].removeprefix(image), words[place + 1 :])
    token = ["--token-file", "/etc/headrace/job/token"]
    assert commands["headrace-controller"] == (0, "controller:1.2.3", [
        "train", "ctr", "--version", "3", "--baseline", "a $HOME \"b\" 'c' `d` $(POD_IP)", "--home", "gs://bucket/home",
        "--run-dir", "gs://bucket/it's", "--hosts", "2", "--readers", "3", "--job-dir", "/var/lib/headrace/job",
        "--launcher", "remote", "--listen", "10.0.0.1:7410", *token,
    ])  # fmt: skip
    found = {name: (machine, words[words.index("--name") + 1], words[words.index("--address") + 1])
             for name, (machine, image, words) in commands.items() if "reader" in name}  # fmt: skip
    assert found == {
        "headrace-reader-0": (0, "r0", "10.0.0.1:7420"),
        "headrace-reader-1": (1, "r1", "10.0.0.2:7420"),
        "headrace-reader-2": (0, "r2", "10.0.0.1:7421"),
    }
    hosts = [(machine, words) for machine, words in lines(tmp_path / "containers.jsonl") if "headrace-host" in words]
    for machine, words in hosts:
        assert words[words.index("host", words.index("--user")):] == [
            "host", "/var/lib/headrace/role", "--name", f"h{machine}", "--address", f"10.0.0.{machine + 1}:7412",
            "--controller", "10.0.0.1:7410", *token, "--grace-secs", "30", "--notice-metadata", "http://metadata.google.internal",
        ]  # fmt: skip
    assert [machine for machine, _ in hosts] == [0, 1]
    files = tmp_path / "machine-1" / "headrace-job"
    assert len((files / "token").read_text().strip()) == 64
    assert (files / "token").read_text() == (tmp_path / "machine-0" / "headrace-job" / "token").read_text()
    assert (files / "catalog.env").read_text() == "HEADRACE_CATALOG_URL=postgresql://user:pass'word@10.1.2.3/headrace\n"


def test_one_host_drives_the_tpus_of_all_machines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The host is on the first machine, and a TensorFlow server on each, which has the TPUs."""
    done = run_script(tmp_path, script(capsys, "--tpu", "local"))
    assert done.returncode == 0, done.stderr
    started = [
        (machine, words[words.index("--name") + 1], words) for machine, words in lines(tmp_path / "containers.jsonl")
    ]
    servers = [(machine, words) for machine, name, words in started if name == "headrace-slice"]
    assert [machine for machine, _ in servers] == [0, 1]
    for _, words in servers:
        assert words[words.index("tpu-server") :] == [
            "tpu-server", "--port", "7416", "--host", "h0", "--controller", "10.0.0.1:7410",
            "--token-file", "/etc/headrace/job/token", "--grace-secs", "30",
        ]  # fmt: skip
        assert "--privileged" in words
        assert any(one.startswith("europe-west4-docker.pkg.dev/project/headrace/headrace-host:") for one in words)
    ((machine, words),) = ((machine, words) for machine, name, words in started if name == "headrace-host")
    assert machine == 0
    assert words[words.index("--tpu") + 1] == "10.0.0.1:7416,10.0.0.2:7416"
    assert "--privileged" not in words


@pytest.mark.slow
def test_a_slice_whose_job_failed_stays_and_is_used_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(capsys)
    done = run_script(tmp_path, text, status=3)
    assert done.returncode == 3
    assert "delete ctr --zone=us-east5-a" in done.stderr
    assert (tmp_path / "made").exists()
    shutil.rmtree(tmp_path / "programs")
    assert run_script(tmp_path, text).returncode == 0
    verbs = [one[3] for one in lines(tmp_path / "calls.jsonl") if one[0] == "compute"]
    assert verbs.count("create") == 1


def test_a_preempted_slice_is_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "made").write_text("PREEMPTED")
    assert run_script(tmp_path, script(capsys, "--spot")).returncode == 0
    verbs = [one[3] for one in lines(tmp_path / "calls.jsonl") if one[0] == "compute"]
    assert verbs[:4] == ["describe", "delete", "create", "describe"]


def test_the_script_needs_the_catalog(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "HEADRACE_CATALOG_URL"}
    done = subprocess.run(["bash", "-s"], input=script(capsys), text=True, capture_output=True, env=environment)
    assert done.returncode != 0
    assert "HEADRACE_CATALOG_URL" in done.stderr


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        (["--zone", ""], "a zone must be one of the cloud"),
        (["--zone", "Us East"], "a zone must be one of the cloud"),
        (["--project", "p;rm"], "a project must be named by its id"),
        (["--topology", "tpu7x:2x2x1"], "that the TPU API offers"),
        (["--queue", "tpus"], "this option needs another launcher"),
        (["--namespace", "team"], "this option needs another launcher"),
    ],
)
def test_a_wrong_option_is_one_error(options: list[str], rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*BASE, *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("error:") == 1
    assert rule in " ".join(captured.err.split())


def test_processes_of_one_machine_have_ports_of_their_own_for_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*BASE, "--metrics-address", "0.0.0.0:9464"]) == 0
    script = capsys.readouterr().out
    assert script.count("--metrics-address 0.0.0.0:9464 ") + script.count("--metrics-address 0.0.0.0:9464\n") == 1
    assert script.count("--metrics-address 0.0.0.0:9465") == 1
    assert '--metrics-address "0.0.0.0:$metrics"' in script
    assert "  metrics=$((9466 + reader / 2))\n" in script
    assert run([*BASE, "--tpu", "local", "--metrics-address", "0.0.0.0:9464"]) == 0
    script = capsys.readouterr().out
    (server,) = (one for one in script.split("sudo docker run") if "tpu-server" in one)
    assert "--metrics-address 0.0.0.0:9466\n" in server
    assert "  metrics=$((9467 + reader / 2))\n" in script
    assert run([*BASE, "--metrics-address", "0.0.0.0:65534"]) == 2
    assert "lower port" in capsys.readouterr().err
