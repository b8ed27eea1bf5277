from __future__ import annotations

import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.job.launch.slice_metrics import CLIENTS, SliceMetrics, clients_of

#: A listener at port 7416 (1CF8), two connections to it, one that is ending, and one from this machine to another's port of the same number.
TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:1CF8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1
   1: 0100007F:1CF8 0100007F:C001 01 00000000:00000000 00:00000000 00000000     0        0 2 1
   2: 0100007F:1CF8 0200007F:C002 01 00000000:00000000 00:00000000 00000000     0        0 3 1
   3: 0100007F:1CF8 0200007F:C003 06 00000000:00000000 00:00000000 00000000     0        0 4 1
   4: 0100007F:C004 0200007F:1CF8 01 00000000:00000000 00:00000000 00000000     0        0 5 1
   5: broken
"""


def test_clients_are_the_established_connections_to_the_port():
    assert (clients_of(TABLE, 7416), clients_of(TABLE, 7417), clients_of("", 7416)) == (2, 0, 0)


@given(st.text(), st.integers(1, 65535))
def test_any_text_has_a_number_of_clients(text, port):
    assert clients_of(text, port) >= 0
    assert clients_of(text + TABLE[TABLE.index("\n") :], 7416) >= 2


def names(metrics: SliceMetrics) -> dict[str, float]:
    return {family.metric.name: sample.value for family in metrics.families() for sample in family.samples}


def test_a_machine_without_the_table_has_no_such_figure():
    found = names(SliceMetrics(7416, is_serving=True, tables=tuple))
    assert found == {"headrace_tpu_server_serving": 1.0, "headrace_tpu_server_leaving": 0.0}


@pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="needs /proc")
def test_connections_of_this_machine_are_counted():
    with socket.create_server(("127.0.0.1", 0)) as server:
        metrics = SliceMetrics(server.getsockname()[1])
        assert names(metrics)[CLIENTS.name] == 0
        with socket.create_connection(server.getsockname()), server.accept()[0]:
            assert names(metrics)[CLIENTS.name] == 1
