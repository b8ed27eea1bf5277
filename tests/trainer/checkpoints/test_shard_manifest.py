"""The names and manifests of shards that servers write."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from trainer.checkpoints.host_part import HostPart, PartName
from trainer.checkpoints.manifest import SHARDED_FORMAT, CheckpointFile, Manifest
from trainer.checkpoints.part_manifest import PartManifest, part_shards
from trainer.checkpoints.shard_manifest import ServerShard, ShardManifest, ShardTable, check_base, check_server_shards
from trainer.checkpoints.shard_name import ShardName, WrittenShards
from trainer.errors import TornCheckpoint

TABLE = ShardTable("embedding", "query", 2, 1, 50)
SHARD = ServerShard(7, 1, 2, 90, (TABLE,))
MANIFEST = ShardManifest(SHARD, (("embedding/rows/query", CheckpointFile(136, "ab")),))
#: Shards of this release are read by later ones.
GOLDEN = """{
 "arrays": [
  {
   "name": "embedding/rows/query",
   "sha256": "ab",
   "size_bytes": 136
  }
 ],
 "format": "headrace.shard/1",
 "sha256": "%s",
 "shard": {
  "attempt": 7,
  "server": 1,
  "servers": 2,
  "step": 90,
  "tables": [
   {
    "kind": "embedding",
    "row_first": 1,
    "row_stride": 2,
    "rows": 50,
    "table": "query"
   }
  ]
 }
}"""
GOLDEN_DIGEST = "49a1cb064af00bfe8b8cbd43ff37fd600d89b1b7ec24fcffb7fdcd308835a750"


def test_the_text_of_a_manifest_stays():
    assert MANIFEST.to_bytes().decode() == GOLDEN % GOLDEN_DIGEST
    assert ShardManifest.from_bytes(MANIFEST.to_bytes(), "here") == MANIFEST


def test_a_changed_manifest_is_refused():
    data = MANIFEST.to_bytes()
    for at in range(0, len(data), 7):
        changed = bytearray(data)
        changed[at] ^= 1
        with pytest.raises(TornCheckpoint):
            ShardManifest.from_bytes(bytes(changed), "here")


@settings(max_examples=scaled(100))
@given(st.integers(0, 10**18 - 1), st.integers(0, 10**6 - 1))
def test_a_name_is_read_as_it_was_written(attempt, server):
    name = ShardName(attempt, server, "0" * 64)
    assert ShardName.parse(str(name), "here") == name


@settings(max_examples=scaled(200))
@given(st.text("0123456789/atemp-sr@v.", max_size=60) | st.just("attempt-000001/server-01@" + "0" * 64))
def test_another_text_is_no_name(text):
    with pytest.raises(TornCheckpoint, match="the name of a shard must be its folder and its digest"):
        ShardName.parse(text, "here")


def shards():
    """The shards of two servers."""
    found = []
    for server in range(2):
        own = replace(SHARD, server=server)
        found.append((ShardName(7, server, "0" * 64), ShardManifest(own, MANIFEST.arrays)))
    return found


def test_shards_of_one_moment_fit():
    check_server_shards(90, shards(), "here")


@pytest.mark.parametrize("change", [{"step": 91}, {"attempt": 8}, {"servers": 3}, {"server": 0}], ids=str)
def test_shards_of_several_moments_or_servers_do_not(change):
    with pytest.raises(TornCheckpoint, match="a shard must be that of its server at the moment of the checkpoint"):
        check_server_shards(90, _with(change), "here")


def _with(change):
    found = shards()
    name, manifest = found[1]
    return [found[0], (name, replace(manifest, shard=replace(manifest.shard, **change)))]


def test_shards_of_other_tables_do_not():
    found = shards()
    name, manifest = found[1]
    with pytest.raises(TornCheckpoint, match="all shards of a checkpoint must have the same arrays"):
        check_server_shards(90, [found[0], (name, replace(manifest, arrays=()))], "here")


STATE = CheckpointFile(7, "ab")


def test_checkpoints_without_shards_have_the_bytes_of_earlier_releases():
    assert (
        Manifest(3, STATE, ()).to_bytes().decode()
        == """{
 "arrays": [],
 "epochs_done": 3,
 "format": "headrace.checkpoint/3",
 "sha256": "f03761e97eab8119c1c2ee108ef8f82607d53e0f413d446958a9134f18e43b37",
 "state": {
  "sha256": "ab",
  "size_bytes": 7
 }
}"""
    )
    assert (
        PartManifest(HostPart(1, 0, 0, 1, 5, 9), ()).to_bytes().decode()
        == """{
 "arrays": [],
 "format": "headrace.part/1",
 "part": {
  "attempt": 1,
  "carried": [],
  "epoch": 0,
  "epoch_steps": 0,
  "epochs_done": 0,
  "history": [],
  "hosts": 1,
  "ledger": null,
  "next_unit": 5,
  "plan": "",
  "rank": 0,
  "step": 9
 },
 "sha256": "0835bf38fcd4cd60ccadabdfb1c75dda021589d4421c136562044b17fd7a47f6"
}"""
    )


def test_a_checkpoint_names_its_shards_and_their_bases():
    written = WrittenShards((ShardName(7, 0, "0" * 64),), (ShardName(3, 0, "1" * 64),))
    manifest = Manifest(3, STATE, (), SHARDED_FORMAT, written)
    assert Manifest.from_bytes(manifest.to_bytes(), "here") == manifest
    part = PartManifest(
        HostPart(1, 0, 0, 1, 5, 9, shards=tuple(map(str, written.names)), bases=tuple(map(str, written.bases))), ()
    )
    assert PartManifest.from_bytes(part.to_bytes(), "here") == part
    assert b'"headrace.part/2"' in part.to_bytes(), "an earlier release would train without the tables"
    assert part_shards([(PartName(1, 0, "0" * 64), part)], "here") == written


def test_a_format_with_shards_names_some():
    manifest = Manifest(3, STATE, (), SHARDED_FORMAT)
    with pytest.raises(TornCheckpoint, match="must name its shards, got none"):
        Manifest.from_bytes(manifest.to_bytes(), "here")


@pytest.mark.parametrize(
    "change", [{"server": 0}, {"servers": 3}, {"attempt": 9}, {"step": 95}, {"tables": ()}, {"base": "x"}], ids=str
)
def test_a_base_is_an_earlier_full_shard_of_the_same_server(change):
    full = ServerShard(3, 1, 2, 40, (TABLE,))
    name = ShardName(3, 1, "0" * 64)
    own = replace(SHARD, tables=(replace(TABLE, is_partial=True),), base=str(name))
    check_base(own, name, ShardManifest(full, ()), "here")
    with pytest.raises(TornCheckpoint, match="the base of a shard must be an earlier full shard of its server"):
        check_base(own, name, ShardManifest(replace(full, **change), ()), "here")


#: Columns 0 to 4 of a table are on server 1, and the other ones on another server.
CUT = (ShardTable("embedding", "query", 1, 0, 50, False, 0, 4), ShardTable("embedding", "query", 1, 0, 0, False, 4, 12))
FILE = CheckpointFile(136, "ab")
OWN = tuple((f"slice-0/embedding/{column}/query", FILE) for column in ("rows", "weights", "slots"))


def test_slices_of_columns_have_a_format_of_their_own():
    manifest = ShardManifest(replace(SHARD, tables=CUT), OWN)
    assert b'"headrace.shard/2"' in manifest.to_bytes(), "an earlier release has no columns of a shard"
    assert ShardManifest.from_bytes(manifest.to_bytes(), "here") == manifest


@pytest.mark.parametrize(
    "tables",
    [
        CUT[1:],
        CUT[::-1],
        (CUT[0], replace(CUT[1], first_column=5)),
        (CUT[0], replace(CUT[1], columns=0)),
        (replace(CUT[0], columns=0), replace(CUT[1], first_column=0)),
    ],
    ids=["first missing", "order", "gap", "whole after a slice", "slice after a whole"],
)
def test_slices_of_columns_follow_each_other(tables):
    manifest = ShardManifest(replace(SHARD, tables=tables), OWN)
    with pytest.raises(TornCheckpoint, match="the slices of a table must follow each other"):
        ShardManifest.from_bytes(manifest.to_bytes(), "here")


@pytest.mark.parametrize("arrays", [OWN[1:], (), (*OWN, ("slice-1/embedding/rows/query", FILE))], ids=len)
def test_a_shard_has_the_arrays_of_its_own_slices_of_columns(arrays):
    manifest = ShardManifest(replace(SHARD, tables=CUT), arrays)
    with pytest.raises(TornCheckpoint, match="a shard must have the arrays of its slices of columns"):
        ShardManifest.from_bytes(manifest.to_bytes(), "here")


def cut_shards(*of_servers):
    return [
        (ShardName(7, server, "0" * 64), ShardManifest(replace(SHARD, server=server, tables=tables), ()))
        for server, tables in enumerate(of_servers)
    ]


def test_all_shards_have_the_same_slices_of_columns():
    others = (replace(CUT[0], rows=0), replace(CUT[1], rows=50))
    check_server_shards(90, cut_shards(CUT, others), "here")
    with pytest.raises(TornCheckpoint, match="all shards of a checkpoint must have the same slices of columns"):
        check_server_shards(90, cut_shards(CUT, (replace(others[0], columns=5), replace(others[1], first_column=5, columns=11))), "here")  # fmt: skip
    with pytest.raises(TornCheckpoint, match="all shards of a checkpoint must have the same slices of columns"):
        check_server_shards(90, cut_shards(CUT, (TABLE,)), "here")
    with pytest.raises(TornCheckpoint, match="a server must have rows of each slice of columns"):
        check_server_shards(90, cut_shards(CUT, CUT), "here")


@pytest.mark.parametrize("change", [{"columns": 5}, {"first_column": 1}], ids=str)
def test_the_base_of_a_slice_has_its_columns(change):
    full = ServerShard(3, 1, 2, 40, CUT)
    name = ShardName(3, 1, "0" * 64)
    own = replace(SHARD, tables=tuple(replace(one, is_partial=True) for one in CUT), base=str(name))
    check_base(own, name, ShardManifest(full, ()), "here")
    other = replace(full, tables=(replace(CUT[0], **change), CUT[1]))
    with pytest.raises(TornCheckpoint, match="the base of a shard must be an earlier full shard of its server"):
        check_base(own, name, ShardManifest(other, ()), "here")


#: A partial shard of a hashed table on that of attempt 3.
REMOVING = replace(
    SHARD, tables=(replace(TABLE, is_partial=True, removes=True),), base=str(ShardName(3, 1, "0" * 64)), generation=12
)
LISTED = (*MANIFEST.arrays, ("embedding/removed/query", FILE))


def test_removed_rows_have_a_format_of_their_own():
    manifest = ShardManifest(REMOVING, LISTED)
    assert b'"headrace.shard/3"' in manifest.to_bytes(), "an earlier release would keep the removed rows"
    assert ShardManifest.from_bytes(manifest.to_bytes(), "here") == manifest
    for data in (manifest.to_bytes(), MANIFEST.to_bytes()):
        other = data.replace(b"shard/3", b"shard/1") if b"shard/3" in data else data.replace(b"shard/1", b"shard/3")
        with pytest.raises(TornCheckpoint):
            ShardManifest.from_bytes(other, "here")


def test_the_text_of_a_manifest_with_removed_rows_stays():
    assert ShardManifest(REMOVING, LISTED).name.sha256 == REMOVING_DIGEST


REMOVING_DIGEST = "c869001d405cd6421ee5f0f61c7dfb14e9b7584e1247d425aaac28866ca7c83d"


@pytest.mark.parametrize(
    ("shard", "arrays"),
    [(REMOVING, MANIFEST.arrays), (SHARD, LISTED), (REMOVING, (*LISTED, ("linear/removed/query", FILE)))],
    ids=["none", "of a full shard", "more"],
)
def test_a_shard_has_the_lists_of_its_tables(shard, arrays):
    manifest = ShardManifest(shard, arrays)
    with pytest.raises(TornCheckpoint, match="a shard must have the arrays of its removed rows"):
        ShardManifest.from_bytes(manifest.to_bytes(), "here")


def test_partial_tables_alone_have_lines_of_candidates():
    lines = ("embedding/lines/query", FILE)
    manifest = ShardManifest(REMOVING, (*LISTED, lines))
    assert ShardManifest.from_bytes(manifest.to_bytes(), "here") == manifest
    with pytest.raises(TornCheckpoint, match="a shard must have the arrays of its lines of candidates"):
        ShardManifest.from_bytes(ShardManifest(SHARD, (*MANIFEST.arrays, lines)).to_bytes(), "here")


@pytest.mark.parametrize("change", [{"is_partial": False}, {"columns": 4}], ids=str)
def test_a_table_that_lists_removed_rows_is_partial_and_whole(change):
    table = replace(REMOVING.tables[0], **change)
    own = replace(REMOVING, tables=(table, replace(table, kind="linear", is_partial=True, columns=0)))
    with pytest.raises(TornCheckpoint, match="must be partial, with all columns"):
        ShardManifest.from_bytes(ShardManifest(own, LISTED).to_bytes(), "here")


def test_shards_that_list_rows_fit_full_ones():
    """A server whose process is new writes a full shard beside the partial ones of others."""
    found = [(ShardName(7, server, "0" * 64), ShardManifest(replace(own, server=server), arrays))
             for server, (own, arrays) in enumerate([(SHARD, MANIFEST.arrays), (REMOVING, LISTED)])]  # fmt: skip
    check_server_shards(90, found, "here")


def test_the_base_of_a_shard_has_its_generation_of_rows():
    full = ServerShard(3, 1, 2, 40, (TABLE,), generation=12)
    name = ShardName(3, 1, "0" * 64)
    check_base(REMOVING, name, ShardManifest(full, ()), "here")
    with pytest.raises(TornCheckpoint, match="the base of a shard must be an earlier full shard of its server"):
        check_base(REMOVING, name, ShardManifest(replace(full, generation=13), ()), "here")
