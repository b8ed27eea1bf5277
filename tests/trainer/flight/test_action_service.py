from __future__ import annotations

import contextlib
import random
import threading
from pathlib import Path

import grpc
import pytest
from pyarrow import flight

from tests.support.examples import scaled
from tests.support.processes import PATIENCE_SECS
from tests.trainer.control.controller_process import ControllerProcesses
from trainer.control.job_files import JobFiles
from trainer.errors import ConfigError, NonFiniteLoss
from trainer.flight.action_service import ActionService
from trainer.flight.addresses import Address
from trainer.flight.client import Client
from trainer.flight.error_documents import RemoteError, from_bytes
from transforms.errors import DataError, HeadraceError, InputError

LOOPBACK = Address("127.0.0.1", 0)
METHOD = "/arrow.flight.protocol.FlightService/DoAction"


def answer(name, content):
    if name == "fail":
        raise NonFiniteLoss("training diverged", where="step 3")
    if name == "defect":
        raise ZeroDivisionError("by zero")
    yield content
    yield name.encode()


def serve(**options):
    return ActionService(LOOPBACK, answer, **{"most_bytes": 1000, **options})


def call(client, name, content=b""):
    found = client.call(lambda c, options: list(c.do_action((name, content), options)), timeout_secs=PATIENCE_SECS)
    return [one.body.to_pybytes() for one in found]


def test_arrow_clients_are_answered():
    with serve() as service:
        client = Client(service.address)
        assert call(client, "echo", b"\0x" * 500) == [b"\0x" * 500, b"echo"]
        assert call(client, "") == [b"", b""]


def test_errors_keep_their_classes():
    with serve() as service:
        client = Client(service.address)
        with pytest.raises(RemoteError) as caught:
            call(client, "fail")
        assert (caught.value.kinds[:2], caught.value.what) == (("NonFiniteLoss", "DataError"), "training diverged")
        assert caught.value.where.endswith("step 3")
        with pytest.raises(RemoteError) as caught:
            call(client, "defect")
        assert (caught.value.kinds[0], caught.value.what) == ("ZeroDivisionError", "by zero")


def test_a_token_is_required_where_there_is_one():
    with serve(token="secret-1") as service:
        assert call(Client(service.address, token="secret-1"), "echo", b"x")[0] == b"x"
        for token in ("", "secret-2", "secret-11"):
            with pytest.raises(InputError, match="token must be that of the job"):
                call(Client(service.address, token=token), "echo")
    with pytest.raises(ConfigError, match="off loopback"):
        ActionService(Address("0.0.0.0", 0), answer, most_bytes=1)


def test_a_port_in_use_is_named():
    with serve() as service, pytest.raises(ConfigError, match="must be free") as caught:
        ActionService(service.address, answer, most_bytes=1)
    assert caught.value.where == str(service.address)
    with pytest.raises(ConfigError, match="of this machine"):
        ActionService(Address("203.0.113.1", 0), answer, token="t", most_bytes=1)


def test_long_messages_are_refused():
    with serve() as service:
        client = Client(service.address)
        assert call(client, "echo", b"x" * 1000)[0] == b"x" * 1000
        for size in (1001, 4000, 10_000, 10_000_000):
            with pytest.raises(HeadraceError, match="must be short"):
                call(client, "echo", b"x" * size)
        with pytest.raises(HeadraceError):
            call(client, "x" * 100_000)


def memory_mb(process_id: int) -> int:
    lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    return next(int(one.split()[1]) // 1024 for one in lines if one.startswith("VmHWM"))


def test_a_long_message_takes_no_memory_of_a_controller(tmp_path):
    with ControllerProcesses() as controllers:
        controllers.start(run_dir=str(tmp_path), stops=[10])
        files = JobFiles(tmp_path)
        while not files.address.exists():
            pass
        before = memory_mb(controllers.process_id)
        with pytest.raises(DataError, match="must be short"):
            call(Client(files.find_controller()), "role", b"x" * (256 << 20))
        assert memory_mb(controllers.process_id) < before + 64
        controllers.kill()
        controllers.wait()


def test_mutated_messages_are_answered_or_refused():
    draw = random.Random(4)
    good = flight.Action("echo", b"content").serialize()
    with serve() as service, grpc.insecure_channel(str(service.address)) as channel:
        do_action = channel.unary_stream(METHOD)
        for number in range(scaled(1000)):
            data = bytearray(good)
            for _ in range(draw.choice([1, 2, 5])):
                place = draw.randrange(len(data) + 1)
                data[place : place + draw.choice([0, 1, 4])] = draw.randbytes(draw.choice([0, 1, 3, 20]))
            request = bytes(data) if number % 10 else draw.randbytes(draw.randrange(60))
            stream = do_action(request, timeout=PATIENCE_SECS)
            with contextlib.suppress(grpc.RpcError):
                list(stream)
            if stream.code() is not grpc.StatusCode.OK:
                assert stream.code() is grpc.StatusCode.UNKNOWN
                details = dict(stream.trailing_metadata())["grpc-status-details-bin"]
                assert "DataError" in from_bytes(details, "service").kinds


def test_many_calls_wait_at_once():
    opened = threading.Event()

    def wait(name, content):
        opened.wait(PATIENCE_SECS)
        yield b"done"

    with ActionService(LOOPBACK, wait, most_bytes=10) as service:
        client = Client(service.address)
        found: list[list[bytes]] = []
        threads = [threading.Thread(target=lambda: found.append(call(client, "x"))) for _ in range(200)]
        for thread in threads:
            thread.start()
        opened.set()
        for thread in threads:
            thread.join()
        assert found == [[b"done"]] * 200
