"""``headrace tpu check`` without the TPU compiler, and its screen with what the compiler says."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from headrace.screens.tpu import SliceRow, StackRow, TpuCheckScreen
from tests.headrace.test_commands import check_golden
from trainer.tpu_check.check import Arrays, CompiledStep
from trainer.tpu_check.compiler_errors import Problem
from trainer.tpu_check.tower_check import BagExchange, Collectives, HostTraffic

GIB = 1 << 30
STACK = StackRow("a_b", ("a", "b"), 2_000_000, (16, 12), "Adagrad", 500_000, 1 * GIB, 256, 128)


def row(**values):
    return SliceRow(
        topology="v5p:2x2x1", chips=4, devices=4, hosts=1, sparse_cores=4, hbm_bytes=95 * GIB, events=4096, table_bytes=1 * GIB,
        dense_bytes=80_000, stacks=(STACK,), **{"step": None, "problem": None, **values},
    )  # fmt: skip


def text(screen):
    console = Console(file=io.StringIO(), width=140)
    console.print(screen.render())
    return console.file.getvalue()


def test_without_the_compiler_tables_and_the_next_step_are_shown(submitted, tmp_path: Path):
    options = tmp_path / "training.json"
    options.write_text('{"dim": 12, "linear": true}')
    arguments = ("tpu", "check", "second", "--topology", "v5p:4x4x4", "--topology", "v6e:2x2", "--config", options,
                 "--events", 512, "--max-ids", 64, "--environment", tmp_path / "none")  # fmt: skip
    answer = submitted(*arguments)
    check_golden("tpu_check_tables", answer.out)
    assert "checking v5p:4x4x4" in answer.err
    document = submitted(*arguments, "--json").json
    large, small = document["slices"]
    assert (large["chips"], large["devices"], large["hosts"], large["events"]) == (64, 64, 16, 64 * 512)
    assert small["sparse_cores"] == 2
    assert large["step"] is None
    assert large["problem"] is None
    stacks = {one["name"]: one for one in small["stacks"]}
    assert set(stacks) == {"overlap_position_user", "linear/overlap_linear/position_linear/user"}
    assert stacks["overlap_position_user"]["rows"] == 1510
    assert stacks["overlap_position_user"]["max_ids"] == 64
    assert small["table_bytes"] == sum(one["device_bytes"] for one in small["stacks"])


@pytest.mark.parametrize(
    ("arguments", "status", "problem"),
    [
        (("second", "--topology", "v9:2x2"), 2, "a topology must be a TPU generation"),
        (("second", "--topology", "v5e:2x2"), 2, "must have SparseCores"),
        (("none", "--topology", "v6e:2x2"), 4, "no such model"),
        (("second", "--topology", "v6e:2x2", "--events", 7), 2, "multiple of its SparseCores"),
        (("second", "--topology", "v6e:2x2", "--max-ids", 0), 2, "default_max_ids"),
        (("second",), 2, "--topology"),
        (("second", "--topology", "v6e:2x2", "--towers"), 2, "a slice must have two hosts or more"),
        (("second", "--topology", "v5p:2x2x2", "--servers", "--towers"), 2, "--towers must go without --servers"),
    ],
)
def test_what_cannot_be_checked_is_one_clear_error(submitted, arguments, status, problem):
    assert problem in submitted("tpu", "check", *arguments, status=status).err


def test_no_slice_is_checked_beside_one_that_cannot_be(submitted):
    err = submitted("tpu", "check", "second", "--topology", "v6e:2x2", "--topology", "v5e:2x2", status=2).err
    assert "must have SparseCores" in err
    assert "checking" not in err


def test_the_dense_part_alone_is_shown_without_tables(submitted, tmp_path):
    arguments = ("tpu", "check", "second", "--servers", "--topology", "v5e:2x2", "--environment", tmp_path / "none")
    document = submitted(*arguments, "--json").json
    (found,) = document["slices"]
    assert (found["devices"], found["sparse_cores"], found["stacks"], found["step"]) == (4, 0, [], None)
    for option in (("--max-ids", 9), ("--serial",)):
        assert "must go without --servers" in submitted(*arguments, *option, status=2).err
    step = CompiledStep(
        GIB, GIB // 2, 1.2e9, 4 * GIB, {"all-reduce": 2}, 21.5, 27_740, Arrays(1, 585_728), Arrays(1, 561_664)
    )
    whole, cut = (replace(row(step=one), stacks=(), table_bytes=0) for one in (step, None))
    check_golden("tpu_check_served", text(TpuCheckScreen("m", 1, (whole, cut), "")))


def test_the_exchange_of_bags_is_shown_by_what_crosses_hosts():
    flat = HostTraffic(Collectives({"all-gather": 1, "all-reduce": 1}, 9 << 20), Collectives({}, 0))
    towers = HostTraffic(Collectives({"all-to-all": 2}, 1 << 20), Collectives({"all-gather": 1, "all-reduce": 1}, 4 << 20))  # fmt: skip
    shown = text(TpuCheckScreen("m", 1, (row(exchange=BagExchange(8, 20, 128, flat, towers)),), ""))
    assert "combined bags of 8 features of 128 columns, 20 ids each; compiled, and run on no TPU:" in shown
    assert (
        "flat: between hosts 1 all-gather, 1 all-reduce, 9.0 MiB a device; inside hosts nothing, 0 B a device" in shown
    )
    assert (
        "a tower on each host: between hosts 2 all-to-all, 1.0 MiB a device; inside hosts 1 all-gather, 1 all-reduce, 4.0 MiB a device"
        in shown
    )


def test_a_compiled_step_and_a_problem_are_shown():
    exchanged = (9 << 20, Arrays(15, 3 << 20), Arrays(0, 0))
    step = CompiledStep(3 * GIB, GIB // 2, 1.2e9, 4 * GIB, {"all-reduce": 2, "all-to-all": 12}, 21.5, *exchanged)
    problem = Problem("hbm", "a training step must fit in the HBM of a device", 115 * GIB, 95 * GIB, "check v5p:2x2x2")
    check_golden("tpu_check_step", text(TpuCheckScreen("m", 1, (row(step=step), row(problem=problem)), "")))
