"""Documents of orders to copy: what is written is read, and any other JSON is refused with one error."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from trainer.servers.loads.copy_orders import CopyOrder, CopyProgress, CopySources
from trainer.tables.routes.servers.named_servers import NamedServers
from trainer.wire.flight.addresses import Address
from transforms.errors import DataError

ORDER = CopyOrder(CopySources(NamedServers((Address("one", 7000), Address("two", 7001)), "secret", True), 9),
                  ((0, 2), (1,)), (10, 0, 3), 1, 2, True)  # fmt: skip


def test_an_order_is_read_as_it_was_written():
    assert CopyOrder.read(json.loads(json.dumps(ORDER.to_document()))) == ORDER
    assert "secret" not in repr(ORDER)
    progress = CopyProgress((3, 0, 5), True)
    assert CopyProgress.read(progress.to_document()) == progress


WRONG = {
    "server": 2, "servers": 0, "gives": [[0]], "rows": [-1], "is_whole": 1, "sources": {},
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_member_is_refused(name):
    with pytest.raises(DataError):
        CopyOrder.read({**ORDER.to_document(), name: WRONG[name]})


JSON = st.recursive(st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.text(max_size=6), lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=6), one, max_size=3), max_leaves=6)  # fmt: skip


@settings(max_examples=scaled(1000))
@given(st.sampled_from(sorted(ORDER.to_document())), JSON)
def test_any_json_is_read_or_refused_with_one_error(name, value):
    for document in ({**ORDER.to_document(), name: value}, value):
        try:
            found = CopyOrder.read(document)
        except DataError:
            continue
        assert found.server < found.servers
        assert len(found.gives) == len(found.sources.named.addresses)
