from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.examples import scaled
from tests.trainer.job.control.test_messages import ERROR, EVENTS
from trainer.errors import DamagedLog, EventNotLogged, LeaseLost, RunMismatch
from trainer.job.control.event_log import FORMAT, EarlierLog, Entry, EventLog, LogOwner, look_at_log, read_log
from trainer.scheduling.events import (
    EVENT_TYPES,
    DataChanged,
    DataRange,
    Deadline,
    EpochDue,
    Heartbeat,
    Joined,
    Lost,
    Notice,
    PartitionChanged,
    PlanFailed,
    Published,
    Recovered,
    Released,
    Resume,
    Role,
    RoleKind,
    ServersChanged,
    StopAsked,
    Tick,
)
from trainer.scheduling.job import Job, JobSettings, Member, PendingCommit, PhaseSettings
from trainer.scheduling.orders import Commit
from trainer.scheduling.transitions import JobState

OWNER = LogOwner("job-1", "1.0", 3)
FIRST = Job(JobSettings(hosts=2), attempt=4)
ROLE = Role(RoleKind.HOST, "h0")


def entries(count: int) -> list[Entry]:
    made = [Entry(Tick(float(n)), float(n), n / 2, {ROLE: n / 4}) for n in range(count)]
    made[1::3] = [Entry(Joined(1.5, ROLE, n, "1.0", 1)) for n, _ in enumerate(made[1::3])]
    return made


def written(path: Path, count: int = 12, **options) -> list[Entry]:
    log = EventLog(path, OWNER, FIRST, **options)
    made = entries(count)
    log.append(made[:2], FIRST)
    for one in made[2:]:
        log.append([one], FIRST)
    log.close()
    return made


def read(path: Path, job: str = "job-1", release: str = "1.0"):
    with read_log(path, job=job, release=release) as found:
        return None if found is None else (found[0], list(found[1]))


def test_a_log_is_read_as_it_was_written(tmp_path):
    made = written(tmp_path / "job" / "events.log")
    start, found = read(tmp_path / "job" / "events.log")
    assert (start.owner, start.job, found) == (OWNER, FIRST, made)
    assert read(tmp_path / "absent") is None


def test_a_log_of_another_job_or_release_is_refused(tmp_path):
    written(tmp_path / "log")
    with pytest.raises(RunMismatch, match="same job") as caught:
        read(tmp_path / "log", job="job-2")
    assert (caught.value.value, caught.value.allowed) == ("job-1", "job-2")
    with pytest.raises(RunMismatch, match="same release") as caught:
        read(tmp_path / "log", release="2.0")
    assert "begin the training again with this release" in caught.value.next_step


def test_a_torn_tail_is_dropped_wherever_it_ends(tmp_path):
    path = tmp_path / "log"
    made = written(path, 6)
    content = path.read_bytes()
    lines = content.splitlines(keepends=True)
    first = len(lines[0])
    counts = {0: 0, 1: 2, 2: 3, 3: 4, 4: 5, 5: 6}
    for end in range(first, len(content), 2):
        path.write_bytes(content[:end])
        whole = content[first:end].count(b"\n")
        assert read(path)[1] == made[: counts[whole]], end


def test_pages_that_were_never_written_are_a_torn_tail(tmp_path):
    path = tmp_path / "log"
    made = written(path, 6)
    content = path.read_bytes()
    last = content.rindex(b"\n", 0, -1) + 1
    for tail in (b"\0" * 700, content[last : last + 40] + b"\0" * 4096, content[last:-9] + b"\0" * 9):
        path.write_bytes(content[:last] + tail)
        assert read(path)[1] == made[:-1]
    path.write_bytes(content[: last - 20] + b"\0" * 20 + content[last:])
    with pytest.raises(DamagedLog, match="bytes that were written"):
        read(path)


def test_a_log_without_its_first_line_is_damaged(tmp_path):
    path = tmp_path / "log"
    for content in (b"", b"x", b"0 1", b"\0" * 100):
        path.write_bytes(content)
        with pytest.raises(DamagedLog):
            read(path)


def test_every_changed_byte_is_found(tmp_path):
    """No flipped bit loses an event, not even in the last line."""
    path = tmp_path / "log"
    written(path, 4)
    content = path.read_bytes()
    draw = random.Random(1)
    first = content.index(b"\n")
    for place in (*range(0, first, 17), *range(first, len(content))):
        changed = bytearray(content)
        changed[place] ^= 1 << draw.randrange(8)
        path.write_bytes(changed)
        with pytest.raises((DamagedLog, RunMismatch)):
            read(path)


@pytest.mark.medium
def test_mutated_logs_are_refused_or_a_prefix(tmp_path):
    path = tmp_path / "log"
    made = written(path)
    content = path.read_bytes()
    draw = random.Random(2)
    for _ in range(scaled(3000)):
        path.write_bytes(_mutated(content, draw))
        try:
            _, found = read(path)
        except (DamagedLog, RunMismatch):
            continue
        assert found == made[: len(found)]


def _mutated(content: bytes, draw: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(draw.choice([1, 1, 1, 2, 5])):
        start = draw.randrange(len(data) + 1)
        stop = min(len(data), start + draw.choice([0, 1, 1, 2, 9, 300]))
        other = draw.randrange(len(data) + 1)
        new = draw.choice(
            [b"", b"\0" * (stop - start), draw.randbytes(stop - start), b"\n", bytes(data[other : other + 200])]
        )
        data[start:stop] = new
    lines = bytes(data).splitlines(keepends=True)
    if draw.random() < 0.3:
        draw.shuffle(lines)
    return b"".join(lines[: draw.choice([len(lines), len(lines), draw.randrange(len(lines) + 1)])])


def test_a_long_log_is_replaced_by_one_that_begins_with_a_job(tmp_path):
    path = tmp_path / "log"
    log = EventLog(path, OWNER, FIRST, most_bytes=8_000)
    number = 0
    for number in range(500):
        log.append([Entry(Tick(float(number)))], FIRST)
        if log.is_long:
            assert log.compact(Job(FIRST.settings, attempt=number))
        assert path.stat().st_size == log.size_bytes < 9_000
    start, found = read(path)
    assert start.job.attempt > 300
    assert found[-1] == Entry(Tick(float(number)))


def test_a_log_that_was_replaced_ends_its_controller(tmp_path):
    """An earlier controller neither appends to the log of a later one, nor replaces it."""
    path = tmp_path / "log"
    log = EventLog(path, OWNER, FIRST)
    later = EventLog(path, LogOwner("job-1", "1.0", 4), FIRST)
    content = path.read_bytes()
    for act in (lambda: log.append(entries(1), FIRST), lambda: log.rewrite(FIRST)):
        with pytest.raises(LeaseLost, match="that of its controller"):
            act()
    assert path.read_bytes() == content
    later.append(entries(2), FIRST)
    path.unlink()
    with pytest.raises(LeaseLost):
        later.append(entries(1), FIRST)


def test_a_sync_that_fails_is_repeated_with_the_whole_log(tmp_path):
    """After a failed sync the system may have dropped the bytes, so the file is not trusted."""
    fails = [False]

    def sync(descriptor: int) -> None:
        if fails[0]:
            raise OSError(5, "Input/output error")
        os.fsync(descriptor)

    path = tmp_path / "log"
    log = EventLog(path, OWNER, FIRST, sync=sync)
    log.append(entries(2), FIRST)
    fails[0] = True
    with pytest.raises(EventNotLogged, match="before it is acted on") as caught:
        log.append(entries(3), FIRST)
    assert caught.value.value == "Input/output error"
    fails[0] = False
    now = Job(FIRST.settings, attempt=9)
    log.append(entries(4), now)
    start, found = read(path)
    assert (start.job, found) == (now, entries(4))


FULL = """
import resource, sys
from pathlib import Path
from tests.trainer.job.control.test_event_log import *
path, free = Path(sys.argv[1]), int(sys.argv[2])
log = EventLog(path, OWNER, FIRST)
log.append(entries(3), FIRST)
before = path.stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (before + free, resource.RLIM_INFINITY))
big = Entry(DataChanged(0.0, DataRange("p" * 500, 0, ())))
try:
    log.append([big], FIRST)
except EventNotLogged as error:
    print(error.value)
assert path.stat().st_size == before
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.append([big], FIRST)
assert read(path)[1] == [*entries(3), big]
"""


@pytest.mark.medium
@pytest.mark.parametrize("free", [0, 1, 100])
def test_a_line_that_does_not_fit_on_the_disk_is_removed(tmp_path, free):
    run = subprocess.run([sys.executable, "-c", FULL, str(tmp_path / "log"), str(free)], capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, "File too large\n"), run.stderr


def test_a_log_that_cannot_be_created_leaves_the_one_before(tmp_path, monkeypatch):
    path = tmp_path / "job" / "log"
    made = written(path)

    def replace(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(EventNotLogged):
        EventLog(path, LogOwner("job-1", "1.0", 9), FIRST)
    assert read(path)[1] == made
    assert [one.name for one in path.parent.iterdir()] == ["log"]


def log_ticks(log: EventLog) -> None:
    for log_ticks.count in range(1000):
        log.append([Entry(Tick(1.0))], FIRST)


def fill(path: Path) -> None:
    with open(path, "ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 512)


@pytest.mark.skipif(not os.path.exists("/dev/full") or os.geteuid() != 0, reason="needs to mount a small disk")
def test_a_full_disk_is_one_error(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("this machine cannot mount a small disk")
    log = EventLog(disk / "log", OWNER, FIRST)
    try:
        shutil.copyfile(__file__, disk / "other")
        fill(disk / "filler")
        with pytest.raises(EventNotLogged) as caught:
            log_ticks(log)
        count = log_ticks.count
        assert caught.value.value == "No space left on device"
        assert not log.compact(FIRST)
        assert len(read(disk / "log")[1]) == count
        (disk / "other").unlink()
        log.append([Entry(Tick(-1.0))], FIRST)
        assert len(read(disk / "log")[1]) == count + 1
    finally:
        log.close()
        subprocess.run(["umount", str(disk)], check=True)


def test_a_line_has_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("trainer.job.control.event_log.MOST_LINE_BYTES", 4000)
    log = EventLog(tmp_path / "log", OWNER, Job())
    with pytest.raises(EventNotLogged, match="fit in a line"):
        log.append([Entry(DataChanged(0.0, DataRange("p" * 5000, 0, ())))], Job())


@pytest.mark.medium
def test_what_is_known_of_a_log_of_another_release(tmp_path):
    path = tmp_path / "log"
    assert look_at_log(path, job="job-1", release="2.0") is None
    written(path)
    assert look_at_log(path, job="job-1", release="1.0") is None
    assert look_at_log(path, job="job-2", release="2.0") is None, "read_log refuses the log of another job"
    assert look_at_log(path, job="job-1", release="2.0") == EarlierLog("1.0", OWNER.lease, FIRST.attempt)
    later = path.read_bytes().replace(FORMAT.encode(), b"headrace.events/7") + b'13 9 0 {"attempt": 41, "more": {}}\n'
    path.write_bytes(later)
    assert look_at_log(path, job="job-1", release="2.0") == EarlierLog("1.0", OWNER.lease, 41)
    draw = random.Random(4)
    for _ in range(2000):
        damaged = bytearray(later)
        for _ in range(draw.randrange(1, 6)):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        path.write_bytes(damaged[: draw.randrange(len(damaged) + 1)])
        found = look_at_log(path, job="job-1", release="2.0")
        assert found is None or (found.attempt < 10**9 and found.lease >= 0)


#: Of a job of a release that is kept, in every kind of state that a log may begin with or add.
GOLDEN = Path(__file__).parent / "goldens" / "events.log"
READER = Role(RoleKind.READER, "r0")
SERVER = Role(RoleKind.SERVER, "s0")
KEPT_OWNER = LogOwner("job-1", "0.1.0", 2)
KEPT_JOB = Job(
    JobSettings(
        release="0.1.0", hosts=2, least_hosts=1, behind_units=64, caught_up=PhaseSettings(epoch_secs=60.0, hosts=1)
    ),
    JobState.TRAINING,
    clock_secs=5.5,
    now_secs=5.0,
    members={ROLE: Member(7, 4.5), READER: Member(1, 4.0, is_leaving=True)},
    incarnations={ROLE: 7, READER: 1},
    commit=Commit(2, 3, 20),
    pending=PendingCommit(Commit(3, 4, 30), ("h0",), {"h0": 7}, {"h0": "part"}),
    attempt=4,
    epoch=3,
    first_unit=20,
    stop_unit=30,
    hosts=("h0",),
    unused_servers=("s1",),
    continues=3,
    positions={"h0": 22},
    drained=frozenset({"h0"}),
    data=DataRange("plan", 40, (10, 20, 30, 40)),
    notices={ROLE: 30.0, None: 60.0},
    away=frozenset({SERVER}),
)
KEPT_EVENTS = (
    *EVENTS,
    Tick(1.0),
    Recovered(1.0),
    Heartbeat(1.0, ROLE, 7),
    Published(1.0, 4),
    Notice(1.0, 30.0, ROLE),
    DataChanged(1.0, DataRange("plan", 40, (10, 40), is_last=False)),
    PlanFailed(1.0, ERROR),
    Released(1.0),
    StopAsked(1.0, now=True),
    Lost(1.0, SERVER),
    EpochDue(1.0),
    Deadline(1.0),
    Resume(1.0),
    PartitionChanged(1.0, "plan of tables"),
    ServersChanged(1.0, 3),
)


def test_the_log_of_a_controller_is_the_one_that_is_kept(tmp_path):
    """Byte for byte while it has this format: a controller of this release goes on from one that an earlier build wrote.

    A change of these bytes needs another ``FORMAT``; ``HEADRACE_WRITE_GOLDENS=1`` writes them.
    """
    assert {type(one) for one in KEPT_EVENTS} == set(EVENT_TYPES.values()), "the kept log must have each kind of event"
    log = EventLog(tmp_path / "log", KEPT_OWNER, KEPT_JOB)
    log.append([Entry(one, 6.0, 5.5, {READER: 5.25}) for one in KEPT_EVENTS], KEPT_JOB)
    log.close()
    written = (tmp_path / "log").read_bytes()
    if os.environ.get("HEADRACE_WRITE_GOLDENS"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_bytes(written)
    assert written == GOLDEN.read_bytes()
    start, found = read(GOLDEN, release="0.1.0")
    assert (start.owner, start.job) == (KEPT_OWNER, KEPT_JOB)
    assert [one.event for one in found] == list(KEPT_EVENTS)


def test_a_kept_log_says_to_a_later_release_where_attempts_go_on():
    assert look_at_log(GOLDEN, job="job-1", release="0.2.0") == EarlierLog("0.1.0", 2, 4)
