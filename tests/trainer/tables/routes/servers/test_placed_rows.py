"""Rows at their places in received messages: the same activations and gradients as rows that were gathered."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.tables.routes.servers.random_batches import gradients_of, random_batch
from trainer.tables import SGD, FeatureSpec, TableSpec
from trainer.tables.kernels.layout import feature_layout, table_layout
from trainer.tables.kernels.threads import Team
from trainer.tables.routes.partitioned.gathered_rows import GatheredRows
from trainer.tables.routes.partitioned.request_kernels import put_rows, take_rows
from trainer.tables.routes.partitioned.requests import RequestMaker
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.routes.servers.placed_rows import PlacedRows, place_bags, places_of
from trainer.tables.routes.servers.stacked_plan import stacked_plan, width_order
from trainer.tables.spec import tables_of

WIDTHS = st.lists(st.sampled_from([1, 3, 4, 5, 8, 16, 17]), min_size=1, max_size=6)


@given(WIDTHS.map(sorted), st.integers(1, 5), st.integers(0, 1000))
def test_places_do_not_overlap_and_rows_begin_at_multiples_of_their_width(dims, servers, seed):
    dims = np.array(dims, np.int64)
    counts = np.random.default_rng(seed).integers(0, 6, (servers, len(dims)))
    places = places_of(counts, dims)
    ranges = sorted(one for own in places.ranges for one in own)
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(ranges))
    assert all(0 <= first < stop <= places.floats for first, stop in ranges)
    taken = np.zeros(places.floats, np.int64)
    for server, own in enumerate(counts):
        in_order = []
        for p, rows in enumerate(own.tolist()):
            for row in range(rows):
                start = int(places.starts[server, p] + row) * int(dims[p])
                assert start + dims[p] <= places.floats
                assert places.starts[server, p] + row < places.positions
                taken[start : start + dims[p]] += 1
                in_order += range(start, start + int(dims[p]))
        views = places.views(server, np.arange(places.floats))
        assert [float_ for view in views for float_ in view.tolist()] == in_order, "a message's rows are in its order"
    assert taken.max(initial=0) <= 1
    assert taken.sum() == (counts * dims).sum()


def test_rows_of_whole_lines_are_whole_lines():
    counts = np.array([[3, 5, 2], [1, 0, 4]])
    places = places_of(counts, np.array([1, 16, 32], np.int64))
    for own in places.ranges:
        assert all(first % 16 == 0 for first, _ in own[1:])


class Sides:
    """The same rows of a batch, placed and gathered."""

    def __init__(self, features, servers: int, threads: int, seed: int, **shape) -> None:
        tables = tables_of(features)
        stacked = tuple(tables[t] for t in width_order(tables))
        self.parts = TableParts(stacked, servers, stacked_plan(stacked, servers))
        of_features, team = feature_layout(features, stacked), Team(threads)
        layout = table_layout(of_features, stacked, 3)
        self.width = sum(one.width for one in features)
        maker = RequestMaker(features, of_features, layout, parts=self.parts, core=0, team=team)
        self.batch = random_batch(features, seed, **shape)
        self.requests = maker.make(self.batch)
        self.places = places_of(self.requests.reads.counts, self.parts.layout.dims)
        self.placed = place_bags(self.requests, self.places, of_features.table, self.parts.layout.table)
        self.placed_rows = PlacedRows(of_features, layout, self.width, team)
        self.gathered_rows = GatheredRows(of_features, layout, self.width, team)

    def floats(self) -> int:
        layout = self.requests.layout
        return int((layout.vocabulary * layout.dims).sum())

    def messages(self, values: np.ndarray) -> list[np.ndarray]:
        """Of each server, what it sends, or is sent, of an array of places."""
        return [np.concatenate([np.zeros(0, np.float32), *self.places.views(k, values)]) for k in range(self.parts.cores)]  # fmt: skip


@settings(max_examples=scaled(60))
@given(
    st.lists(st.tuples(st.integers(1, 30), st.sampled_from([1, 3, 4, 8, 16, 17]), st.sampled_from(["sum", "mean", "sqrtn"]), st.integers(0, 3)), min_size=1, max_size=5),
    st.integers(1, 4), st.integers(1, 3), st.integers(0, 500),
)  # fmt: skip
def test_placed_rows_give_the_bits_of_gathered_ones(drawn, servers, threads, seed):
    features = [
        FeatureSpec(f"f{k}", TableSpec(f"t{k}", rows, dim, SGD(0.5), combiner), length)
        for k, (rows, dim, combiner, length) in enumerate(drawn)
    ]
    features.append(FeatureSpec("again", features[0].table))
    sides = Sides(features, servers, threads, seed, events=seed % 9)
    draw = np.random.default_rng(seed)
    received = np.full(sides.places.floats, np.nan, np.float32)
    reads, gathered = sides.requests.reads, np.empty(sides.floats(), np.float32)
    for server in range(servers):
        for view in sides.places.views(server, received):
            view[:] = draw.normal(size=len(view))
        answer = sides.messages(received)[server]
        put_rows(
            reads.places[reads.of_owner(server)],
            reads.counts[server],
            sides.requests.part_values,
            np.append(answer, np.zeros(16, np.float32)),
            gathered,
        )
    out = np.empty(sides.batch.rows * sides.width, np.float32)
    sides.placed_rows.combine(sides.placed, sides.batch.rows, sides.places.positions, received, out)
    assert out.tobytes() == sides.gathered_rows.combine(sides.requests, gathered).tobytes()

    flat = gradients_of(sides.batch, sides.width, seed).reshape(-1)
    sums, gathered_sums = np.full(sides.places.floats, np.nan, np.float32), np.empty(sides.floats(), np.float32)
    sides.placed_rows.sum_gradients(sides.placed, sides.requests.layout.vocabulary, flat, sums)
    sides.gathered_rows.sum_gradients(sides.requests, flat, gathered_sums)
    for server, message in enumerate(sides.messages(sums)):
        expected = np.empty(len(message), np.float32)
        own = reads.places[reads.of_owner(server)]
        take_rows(own, reads.counts[server], sides.requests.part_values, gathered_sums, expected)
        assert message.tobytes() == expected.tobytes()
