"""The names and manifests of shards that servers write."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from trainer.checkpoints.manifest import CheckpointFile
from trainer.checkpoints.shard_manifest import ServerShard, ShardManifest, ShardTable, check_server_shards
from trainer.checkpoints.shard_name import ShardName
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
