"""Values of the options of ``headrace train`` that go together, for property tests."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

_TEXT = st.text(
    st.one_of(st.characters(min_codepoint=32, max_codepoint=126), st.sampled_from("\"\\'#=[]é漢\t")),
    min_size=1,
    max_size=12,
)
TEXT = _TEXT.filter(lambda one: not one.startswith(("-", "{")) and "://" not in one and one.strip() == one)
#: Relative paths, absolute ones and locations in a bucket.
PATHS = st.one_of(TEXT.filter(lambda one: "/" not in one), st.just("/data/one file"), st.just("../up/file"))
_COUNTS = st.integers(1, 8)
_READERS = st.sampled_from(["1", "3", "03", "2..8", "4..4"])
_SECS = st.floats(0.125, 1e6)
_TIMES = st.sampled_from(["2026-03-02", "2026-03-02T12:00", "2026-03-02T12:00:30.5", "2026-03-02T12:00:00+01:00"])

_OF_ANY = {
    "version": _COUNTS,
    "start": _TIMES,
    "table_version": _COUNTS,
    "baseline": st.lists(TEXT, min_size=1, max_size=3),
    "accept_changed": st.booleans(),
    "train_changed_labels": st.booleans(),
    "batch_files": st.sampled_from(["50GB", "1.5 GiB", "4096"]),
    "config": PATHS,
    "run_dir": st.one_of(PATHS, st.just("gs://bucket/run")),
    "job_dir": PATHS,
    "home": st.one_of(PATHS, st.just("s3://bucket/home")),
    "readers": _READERS,
    "epoch_secs": _SECS,
    "epoch_events": _COUNTS,
    "epoch_steps": _COUNTS,
    "least_hosts": _COUNTS,
    "grace_secs": st.just(0.0) | _SECS,
    "notice_file": PATHS,
    "notice_http": st.just("127.0.0.1:0"),
    "notice_metadata": st.just("http://metadata.google.internal"),
    "wait_for_memos": st.booleans(),
    "shuffle_events": _COUNTS,
    "poll_secs": _SECS,
    "plan": PATHS,
    "towers": PATHS,
    "hosts_per_machine": _COUNTS,
    "dense_values": st.sampled_from(["float32", "bf16"]),
    "least_servers": st.integers(1, 2),
    "embedding_workers": st.sampled_from(["1", "2", "07"]),
    "server_token_file": PATHS,
    "server_ca": PATHS,
    "server_updates": st.sampled_from(["summed", "each"]),
    "wire_ids": st.sampled_from(["plain", "unique"]),
    "wire_values": st.sampled_from(["float32", "fp14"]),
    "export_quantize": st.sampled_from(["none", "int8"]),
    "tpu": TEXT,
    "max_ids": _COUNTS,
    "max_unique_ids": _COUNTS,
}
_OF_FOLLOWING = {"caught_up_hosts": st.integers(8, 9), "caught_up_readers": _READERS, "caught_up_epoch_secs": _SECS}
_OF_A_RANGE = {"end": _TIMES}

#: Servers that go with any of the other options.
_SERVERS = st.sampled_from(["2", "02", "a:1,b:2"])


def train_values() -> st.SearchStrategy[dict[str, Any]]:
    """Some values by name, of a job on servers with an export."""
    always: dict[str, st.SearchStrategy[Any]] = {
        "model": TEXT,
        "hosts": st.just(8),
        "servers": _SERVERS,
        "export": PATHS,
    }
    of_range = st.fixed_dictionaries(always, optional={**_OF_ANY, **_OF_A_RANGE})
    followed = st.fixed_dictionaries({**always, "follow": st.just(True)}, optional={**_OF_ANY, **_OF_FOLLOWING})
    of_towers = {"towers": PATHS, "hosts_per_machine": _COUNTS, "tower_sums": st.booleans()}
    by_towers = st.fixed_dictionaries({**always, **of_towers}, optional=_OF_A_RANGE)
    others = st.fixed_dictionaries({"model": TEXT}, optional={"start": _TIMES, "config": PATHS, "run_dir": PATHS})
    return st.one_of(others, of_range, followed, by_towers)
