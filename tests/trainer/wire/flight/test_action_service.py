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
from tests.trainer.job.control.controller_process import ControllerProcesses
from trainer.errors import ConfigError, DamagedFrame, NonFiniteLoss
from trainer.job.control.job_files import JobFiles
from trainer.job.launch.chaos.links import Links
from trainer.job.launch.chaos.wire_damage import DamageKind, DamagePoint, DamageSettings, Direction, random_damage
from trainer.wire.flight.action_service import ActionService
from trainer.wire.flight.addresses import Address
from trainer.wire.flight.client import Client
from trainer.wire.flight.error_documents import RemoteError, Unreachable, from_bytes
from trainer.wire.flight.sealed_actions import (
    open_error,
    open_request,
    open_results,
    seal_error,
    seal_request,
    seal_results,
)
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
    return [bytes(one) for one in client.act(name, content, list, timeout_secs=PATIENCE_SECS)]


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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_long_message_takes_no_memory_of_a_controller(tmp_path):
    with ControllerProcesses() as controllers:
        controllers.start(run_dir=str(tmp_path), stops=[10])
        files = JobFiles(tmp_path)
        while not files.address.exists():
            pass
        before = memory_mb(controllers.process_id)
        with pytest.raises(DataError, match="must be short"):
            call(Client(files.find_controller(), token=files.read_token()), "role", b"x" * (256 << 20))
        assert memory_mb(controllers.process_id) < before + 64
        controllers.kill()
        controllers.wait()


def test_mutated_messages_are_answered_or_refused():
    draw = random.Random(4)
    good = flight.Action("echo", seal_request("echo", b"content", 5)).serialize()
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
                assert "DamagedFrame" in from_bytes(open_error(details), "service").kinds


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


def test_sealed_actions_are_opened_as_they_were_written():
    assert open_request(seal_request("näme", b"content", 5)) == ("näme", b"content", 5)
    frames = [b"".join(parts) for parts in seal_results([b"one", b"", b"two"], 5)]
    assert [bytes(one) for one in open_results(frames, 5)] == [b"one", b"", b"two"]
    assert open_error(seal_error(b"{}")) == b"{}"


def test_each_flipped_bit_of_a_sealed_action_is_found():
    request = seal_request("role", b"position 7", 5)
    frames = [b"".join(parts) for parts in seal_results([b"one", b"two"], 5)]
    for bit in range(8 * len(request)):
        with pytest.raises(DamagedFrame):
            open_request(flipped(request, bit))
    for k, frame in enumerate(frames):
        for bit in range(8 * len(frame)):
            with pytest.raises(DamagedFrame):
                list(open_results([*frames[:k], flipped(frame, bit), *frames[k + 1 :]], 5))


def flipped(content, bit):
    found = bytearray(content)
    found[bit // 8] ^= 1 << bit % 8
    return bytes(found)


def test_results_that_are_lost_repeated_or_reordered_are_found():
    frames = [b"".join(parts) for parts in seal_results([b"one", b"two"], 5)]
    one, two, end = frames
    for wrong in ([], [one], [one, two], [two, end], [one, end], [one, one, two, end], [two, one, end]):
        with pytest.raises(DamagedFrame):
            list(open_results(wrong, 5))
    with pytest.raises(DamagedFrame):
        list(open_results(frames, 6))


@pytest.mark.slow
def test_calls_through_a_damaged_connection_are_answered_right_or_not_at_all():
    """Flips, drops, repeats and reorders in what gRPC sends, its own frames and headers among them."""
    with serve(token="secret") as service, Links() as links:
        link = links.open(lambda: service.address)
        client = Client(link.address, token="secret")
        links.damage(link, random_damage(DamageSettings(2, mean_bytes=1500, most_run_bytes=20, delay_secs=0.01)))
        right = failed = 0
        for number in range(scaled(150)):
            content = bytes([number % 256]) * (number % 900)
            try:
                found = client.act("echo", content, list, timeout_secs=1.0)
            except (Unreachable, DamagedFrame):
                failed += 1
                continue
            assert [bytes(one) for one in found] == [content, b"echo"]
            right += 1
        assert sum(link.damages.values()) > 20
        assert right > scaled(150) // 4
        links.damage(link, None)
        assert call(client, "echo", b"x")[0] == b"x"


@pytest.mark.parametrize("position", [*range(0, 420, 12)])
def test_a_flip_of_each_part_of_a_request_refuses_no_token_and_no_length(position):
    """Of the connection's beginning, the headers with the token, and the message: the next call is made over another connection."""
    with serve(token="secret") as service, Links() as links:
        link = links.open(lambda: service.address)

        def draw(connection, direction):
            is_first = connection == 0 and direction is Direction.REQUESTS
            return iter([DamagePoint(position, DamageKind.FLIP, bit=position % 7)] if is_first else [])

        links.damage(link, draw)
        client = Client(link.address, token="secret")
        for _ in range(3):
            try:
                assert [bytes(one) for one in client.act("echo", b"x" * 50, list, timeout_secs=0.5)] == [
                    b"x" * 50,
                    b"echo",
                ]
                break
            except (Unreachable, DamagedFrame):
                continue
        else:
            raise AssertionError("no call was answered")
