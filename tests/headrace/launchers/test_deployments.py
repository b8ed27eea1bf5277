"""The manifests of workers and pages: by the schemas of Kubernetes, by what their pods may do, and run as they say beside a real PostgreSQL."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import transforms.expressions.expression as hr
from headrace.web.config import DEFAULT_PORT
from tests.headrace.launchers.test_container_files import FILES, ROOT, steps
from tests.headrace.web.pages import Browser
from tests.headrace.web.raw_requests import head, send
from tests.headrace.web.ui_command import command
from tests.support.identity_proxy import PASS, identity_proxy
from tests.support.kubernetes_schemas import check_object
from tests.support.processes import PATIENCE_SECS
from tests.warehouse.scenes import FREE_READS, REPOSITORY, computed_warehouse, write_log
from transforms.expressions.model import Model
from warehouse import Warehouse, WarehouseConfig, read_solution, register_table, submit_model
from warehouse.eviction.history import list_evictions

FOLDER = ROOT / "examples" / "kubernetes"
MANIFESTS = {path.name: list(yaml.safe_load_all(path.read_text())) for path in sorted(FOLDER.glob("*.yaml"))}
#: Where containers of an image may write.
WRITABLE = ("/tmp", "/var/cache/headrace", "/var/lib/headrace")


def pod(file: str) -> dict[str, Any]:
    """The pod of the Deployment in a file."""
    (found,) = (one for one in MANIFESTS[file] if one["kind"] == "Deployment")
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


def container(file: str, name: str) -> dict[str, Any]:
    """A container of the pod in a file."""
    found: dict[str, Any] = next(one for one in pod(file)["containers"] if one["name"] == name)
    return found


def test_objects_follow_the_schemas() -> None:
    kinds = {file: [one["kind"] for one in documents] for file, documents in MANIFESTS.items()}
    assert kinds == {
        "page.yaml": ["ServiceAccount", "Deployment", "Service", "NetworkPolicy"],
        "workers.yaml": ["ServiceAccount", "Deployment", "NetworkPolicy"],
    }
    for documents in MANIFESTS.values():
        for one in documents:
            check_object(one)


@pytest.mark.parametrize("file", MANIFESTS)
def test_a_pod_may_do_what_it_needs_alone(file: str) -> None:
    found = pod(file)
    assert found["automountServiceAccountToken"] is False
    context = found["securityContext"]
    assert (context["runAsNonRoot"], context["runAsUser"], context["seccompProfile"]) == (
        True,
        1000,
        {"type": "RuntimeDefault"},
    )
    volumes = {one["name"] for one in found["volumes"] if "emptyDir" in one}
    for one in found["containers"]:
        rights = one["securityContext"]
        assert (rights["readOnlyRootFilesystem"], rights["allowPrivilegeEscalation"], rights["capabilities"]) == (
            True,
            False,
            {"drop": ["ALL"]},
        )
        assert {"requests", "limits"} <= set(one["resources"])
        assert {"livenessProbe", "readinessProbe"} <= set(one)
        assert {mount["name"] for mount in one.get("volumeMounts", ())} <= volumes
        for variable in one["env"]:
            is_secret = any(word in variable["name"] for word in ("URL", "SECRET", "CLIENT"))
            assert ("secretKeyRef" in variable.get("valueFrom", {})) == is_secret, variable


@pytest.mark.parametrize(("file", "name"), [("page.yaml", "page"), ("workers.yaml", "worker")])
def test_a_pod_agrees_with_its_image(file: str, name: str) -> None:
    found = container(file, name)
    assert found["image"].rpartition("/")[2] == f"headrace-{name}:TAG"
    assert {one["mountPath"] for one in found["volumeMounts"]} == set(WRITABLE)
    assert ("USER", "1000:1000") in steps(name)
    assert f"NUMBA_CACHE_DIR={WRITABLE[1]}" in FILES[name].read_text()
    assert ("WORKDIR", WRITABLE[2]) in steps(name)


def test_the_proxy_alone_reaches_the_page() -> None:
    """The page listens at the pod's loopback, the Service and the policy lead to the proxy, and both agree on the header and the host."""
    arguments = container("page.yaml", "page")["args"]
    assert "--host" not in arguments
    assert "ports" not in container("page.yaml", "page")
    proxy = container("page.yaml", "proxy")
    assert f"--upstream=http://127.0.0.1:{DEFAULT_PORT}" in proxy["args"]
    assert {"--pass-user-headers=true", "--skip-auth-strip-headers=true", "--pass-host-header=true"} <= set(
        proxy["args"]
    )
    assert arguments[arguments.index("--user-header") + 1] == "X-Forwarded-User"
    host = arguments[arguments.index("--allowed-host") + 1]
    assert f"--redirect-url=https://{host}/oauth2/callback" in proxy["args"]
    (service,) = (one for one in MANIFESTS["page.yaml"] if one["kind"] == "Service")
    (policy,) = (one for one in MANIFESTS["page.yaml"] if one["kind"] == "NetworkPolicy")
    assert service["spec"]["ports"][0]["targetPort"] == proxy["ports"][0]["name"]
    assert [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]] == [
        proxy["ports"][0]["containerPort"]
    ]
    (deployment,) = (one for one in MANIFESTS["page.yaml"] if one["kind"] == "Deployment")
    assert (deployment["spec"]["replicas"], deployment["spec"]["strategy"]) == (1, {"type": "Recreate"})


def test_policies_select_the_pods_of_their_files() -> None:
    for documents in MANIFESTS.values():
        (deployment,) = (one for one in documents if one["kind"] == "Deployment")
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        (policy,) = (one for one in documents if one["kind"] == "NetworkPolicy")
        assert policy["spec"]["podSelector"]["matchLabels"] == labels == deployment["spec"]["selector"]["matchLabels"]
        assert set(policy["spec"]["policyTypes"]) == {"Ingress", "Egress"}


def make_home(folder: Path, url: str) -> Path:
    """A warehouse with ready memos."""
    with computed_warehouse(folder, catalog_url=url):
        return folder / "home"


@pytest.mark.slow
def test_the_page_runs_as_its_manifest_says(
    new_database: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With PostgreSQL and a proxy that names users: entering, seeing, evicting as that user; refused without the header, with two, and past the proxy."""
    url = new_database()
    home = make_home(tmp_path, url)
    monkeypatch.setenv("HEADRACE_CATALOG_URL", url)
    page = container("page.yaml", "page")
    host = page["args"][page["args"].index("--allowed-host") + 1]
    options = page["args"][1:]
    with command(home, tmp_path / "ui.txt", *(one for one in options if one != "--allow-changes")) as inside:
        direct = inside.browser
        assert "token" not in inside.log.read_text()
        probe = page["livenessProbe"]["exec"]["command"]
        port = int(direct.address.split(":")[2].strip("/"))
        for at, status in ((port, 0), (1, 1)):
            code = probe[2].replace(str(DEFAULT_PORT), str(at))
            assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == status
        for headers in ((), ("X-Forwarded-User: ann", "X-Forwarded-User: bob"), ("X-Forwarded-User:",)):
            assert send(direct, head(direct, "GET / HTTP/1.1", f"Host: {host}", *headers, host=False)).status == 403, (
                headers
            )
        with identity_proxy(port, "X-Forwarded-User", {"1": "ann@example.com", "2": "bob@example.com"}) as outside:
            address = f"http://127.0.0.1:{outside}/"
            shown = {"Host": host, PASS: "1"}
            assert Browser(address, headers={"Host": host}).get("/").status == 401
            assert Browser(address, headers={**shown, "Host": "evil.example"}).get("/").status == 421
            ann = Browser(address, headers=shown)
            first = ann.get("/evict?column=query")
            assert first.status == 200
            assert "ann@example.com" in first.text
            claimed = Browser(address, headers={**shown, "X-Forwarded-User": "mallory"}).get("/")
            assert "ann@example.com" in claimed.text
            assert "mallory" not in claimed.text
            ann.cookie = first.headers["set-cookie"].partition(";")[0]
            page_of_ann = ann.get("/evict?column=query")
            form = {"form_token": page_of_ann.form_token, "preview": page_of_ann.preview, "memos": "6", "why": "by ann"}
            bob = Browser(address, cookie=ann.cookie, headers={"Host": host, PASS: "2"})
            assert bob.post("/evict", form, Origin=f"https://{host}").status == 403, "the session of another user"
            assert ann.post("/evict", form, Origin="https://evil.example").status == 403
            done = ann.post("/evict", form, Origin=f"https://{host}")
            assert done.status == 303
            assert "by ann" in ann.get(done.headers["location"]).text
    with Warehouse.open(WarehouseConfig(str(home), catalog_url=url, rates=FREE_READS)) as warehouse:
        (past,) = list_evictions(warehouse)
        assert (past.who, past.memos) == ("ann@example.com", 6)
        assert read_solution(warehouse, "ctr").count("load") == 0


_READ_ONLY = """
set -e
mount --make-rprivate /
for folder in "$HOME_FOLDER" "$TMPDIR" "$NUMBA_CACHE_DIR"; do mount --bind "$folder" "$folder"; done
awk '{print $2}' /proc/self/mounts | while read -r place; do
  case "$place" in /proc*|/sys*|/dev*|"$HOME_FOLDER"|"$TMPDIR"|"$NUMBA_CACHE_DIR") ;; *) mount -o remount,bind,ro "$place" 2>/dev/null || true ;; esac
done
if touch "$CHECKED/x" 2>/dev/null; then echo "not read-only"; exit 70; fi
exec "$@"
"""


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0,
    reason="needs the right to mount",
)
def test_workers_and_pages_need_no_writable_root(tmp_path: Path) -> None:
    """In a mount namespace in which everything but the volumes of the pods is read-only, a worker computes and the page serves."""
    folder = tmp_path / "all"
    folder.mkdir()
    with Warehouse.open(WarehouseConfig(str(folder / "home"), rates=FREE_READS)) as opened:
        register_table(opened, "log", str(write_log(folder / "home" / "log")))
        short = Model("short", client="search", label="clicked", table="log")
        short.input("price", hr.float32("price").fill_null(0.0).log1p())  # few kernels to compile in the empty cache
        submit_model(opened, short)
    places = {"HOME_FOLDER": folder / "home", "TMPDIR": folder / "tmp", "NUMBA_CACHE_DIR": folder / "cache"}
    for one in places.values():
        one.mkdir(exist_ok=True)
    environment = {**os.environ, **{name: str(place) for name, place in places.items()}, "CHECKED": str(tmp_path), "HEADRACE_HOME": str(folder / "home"),
                   "PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["unshare", "--mount", "sh", "-c", _READ_ONLY, "sh", sys.executable, *words], env=environment, capture_output=True,
                              text=True, timeout=PATIENCE_SECS, cwd=folder / "home")  # fmt: skip

    done = run("-m", "headrace", "work", "--until-idle")
    assert done.returncode == 0, done.stderr + done.stdout
    with Warehouse.open(WarehouseConfig(str(folder / "home"), rates=FREE_READS)) as warehouse:
        assert read_solution(warehouse, "short").count("load") == 3
    code = """
import threading, time, urllib.request, urllib.error
from headrace.cli.main import run
def look():
    for _ in range(600):
        try:
            print(urllib.request.urlopen("http://127.0.0.1:%s/healthz" % port).read()); break
        except urllib.error.URLError:
            time.sleep(0.1)
    request = urllib.request.Request("http://127.0.0.1:%s/graphs" % port, headers={"X-Forwarded-User": "ann"})
    print(urllib.request.urlopen(request).status)
    import os, signal; os.kill(os.getpid(), signal.SIGINT)
import socket
with socket.socket() as free:
    free.bind(("127.0.0.1", 0)); port = free.getsockname()[1]
threading.Thread(target=look).start()
run(["ui", "--port", str(port), "--user-header", "X-Forwarded-User"])
"""
    done = run("-c", code)
    assert "ok" in done.stdout, done.stderr + done.stdout
    assert "200" in done.stdout, done.stderr + done.stdout
