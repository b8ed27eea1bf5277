"""Damage of a stream's bytes: what each kind does, and that it does not depend on how a stream is cut into pieces."""

import contextlib
import itertools
import random
import socket
import threading

import pytest

from trainer.job.launch.chaos.links import Links
from trainer.job.launch.chaos.wire_damage import (
    DamagedStream,
    DamageKind,
    DamagePoint,
    DamageSettings,
    Direction,
    random_damage,
)
from trainer.wire.flight.addresses import Address
from transforms.errors import InputError

TEXT = b"abcdefghijklmnopqrstuvwxyz"


def damaged(*points: DamagePoint, pieces=(TEXT,)) -> bytes:
    stream = DamagedStream(iter(points))
    return b"".join(one.content for piece in pieces for one in stream.damage(piece))


def test_each_kind_changes_its_run():
    assert damaged(DamagePoint(1, DamageKind.FLIP, bit=0)) == b"ac" + TEXT[2:]
    assert damaged(DamagePoint(2, DamageKind.DROP, 3)) == b"ab" + TEXT[5:]
    assert damaged(DamagePoint(2, DamageKind.REPEAT, 3)) == b"abcdecde" + TEXT[5:]
    assert damaged(DamagePoint(2, DamageKind.REORDER, 3)) == b"abfghcde" + TEXT[8:]
    assert damaged(DamagePoint(2, DamageKind.DELAY, 3, delay_secs=0.5)) == TEXT
    assert damaged() == TEXT


def test_a_delayed_run_says_how_long_it_waits():
    stream = DamagedStream(iter([DamagePoint(2, DamageKind.DELAY, 3, delay_secs=0.5)]))
    assert [(one.content, one.delay_secs) for one in stream.damage(TEXT)] == [
        (b"ab", 0.0),
        (b"cde", 0.5),
        (TEXT[5:], 0.0),
    ]


def test_several_points_are_taken_in_order_and_counted():
    counted = []
    stream = DamagedStream(
        iter(
            [DamagePoint(0, DamageKind.DROP, 1), DamagePoint(1, DamageKind.FLIP), DamagePoint(25, DamageKind.DROP, 5)]
        ),
        counted.append,
    )
    content = b"".join(one.content for piece in (TEXT, TEXT) for one in stream.damage(piece))
    assert content == b"c" + TEXT[2:25] + TEXT[4:]
    assert counted == [DamageKind.DROP, DamageKind.FLIP, DamageKind.DROP]


def test_flips_and_drops_do_not_depend_on_pieces():
    settings = DamageSettings(7, mean_bytes=20, most_run_bytes=9, kinds=(DamageKind.FLIP, DamageKind.DROP))
    content, draw = random.Random(1).randbytes(4000), random.Random(2)

    def pieces():
        at = 0
        while at < len(content):
            length = draw.randint(1, 50)
            yield content[at : at + length]
            at += length

    expected = damaged(*first_points(settings), pieces=(content,))
    assert expected != content
    for _ in range(20):
        assert damaged(*first_points(settings), pieces=pieces()) == expected


def first_points(settings):
    draw = random_damage(settings)(0, Direction.REQUESTS)
    return [next(draw) for _ in range(500)]


def test_a_reordered_run_waits_for_a_piece_with_two_bytes():
    assert damaged(DamagePoint(1, DamageKind.REORDER, 1), pieces=(b"ab", b"cd", b"ef")) == b"abdcef"


def test_equal_seeds_give_equal_points_and_other_streams_give_others():
    one, again = first_points(DamageSettings(3)), first_points(DamageSettings(3))
    answers = random_damage(DamageSettings(3))(0, Direction.ANSWERS)
    later = random_damage(DamageSettings(3))(1, Direction.REQUESTS)
    assert one == again
    assert one[0] != next(answers)
    assert one[0] != next(later)
    assert {point.kind for point in one} == set(DamageKind)
    assert all(before.at_byte < after.at_byte for before, after in itertools.pairwise(one))


def test_settings_without_a_kind_or_a_distance_are_refused():
    with pytest.raises(InputError, match="at least one kind of damage"):
        DamageSettings(kinds=())
    with pytest.raises(InputError, match="mean_bytes must be at least 1"):
        DamageSettings(mean_bytes=0)


def test_a_link_damages_the_direction_that_is_drawn_and_ends_on_demand():
    with socket.create_server(("127.0.0.1", 0)) as server, Links() as links:

        def echo():
            connection, _ = server.accept()
            with connection, contextlib.suppress(ConnectionError):
                while piece := connection.recv(100):
                    connection.sendall(piece)

        threading.Thread(target=echo, daemon=True).start()
        link = links.open(lambda: Address("127.0.0.1", server.getsockname()[1]))
        with (
            socket.create_connection((link.address.host, link.address.port), timeout=30) as client,
            client.makefile("rb") as file,
        ):
            client.sendall(b"before")
            assert file.read(6) == b"before"
            links.damage(
                link,
                lambda connection, direction: iter(
                    [DamagePoint(0, DamageKind.FLIP)] if direction is Direction.ANSWERS and connection == 0 else []
                ),
            )
            client.sendall(b"abc")
            assert file.read(3) == b"`bc"
            links.damage(link, None)
            client.sendall(b"after")
            assert file.read(5) == b"after"
        assert link.damages == {DamageKind.FLIP: 1}
        assert link.connections == 1
