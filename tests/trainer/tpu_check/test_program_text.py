from __future__ import annotations

import pytest

from trainer.tpu_check.program_text import exchanged, exchanged_along, exchanged_by_hosts, scattered_sums

#: The head of an optimized program of two state arrays and a packed one, and lines of its collectives.
HEAD = (
    "HloModule step, is_scheduled=true, input_output_alias={ {0}: (0, {}, must-alias), {1}: (1, {}, must-alias) }, "
    "entry_computation_layout={(f32[8,64]{1,0:T(8,128)}, f32[]{:T(128)}, f32[1024,143]{0,1:T(8,128)})->"
    "(f32[8,64]{1,0:T(8,128)}, f32[]{:T(128)}, f32[142336]{0:T(1024)})}, num_partitions=1, frontend={a=f32[9]}\n"
)
LINES = """\
  %all-reduce = (f32[8,64]{1,0:T(8,128)}, f32[]{:T(128)}) all-reduce(%a, %b), channel_id=1
  %all-gather-start = (f32[4]{0}, f32[16]{0}) all-gather-start(%c), channel_id=2
  %all-gather-done = f32[16]{0} all-gather-done(%all-gather-start)
  %all-to-all = (s32[8]{0}, s32[8]{0}) all-to-all(%d, %e)
"""


def test_state_stays_and_one_array_crosses_each_way():
    found = exchanged(HEAD + LINES)
    assert found["entering"] == [1, 1024 * 143 * 4]
    assert found["leaving"] == [1, 142336 * 4]
    assert found["collectives"] == {"all-gather": 1, "all-reduce": 1, "all-to-all": 1}
    assert found["collective_bytes"] == (8 * 64 + 1) * 4 + 16 * 4 + 2 * 8 * 4
    assert found["host_calls"] == 0


def test_calls_of_the_host_are_counted():
    calls = "  %send = (f32[4], u32[], token[]) send(%a, %t), channel_id=1, is_host_transfer=true\n  %i = (f32[4], token[]) infeed(%t)\n"
    assert exchanged(HEAD + calls)["host_calls"] == 2


def test_without_aliases_all_arrays_cross():
    head = "HloModule m, entry_computation_layout={(pred[3]{0}, bf16[2,2]{1,0})->s8[5]{0}}\n"
    found = exchanged(head)
    assert (found["entering"], found["leaving"]) == ([2, 3 + 8], [1, 5])


@pytest.mark.parametrize(
    ("groups", "place"),
    [
        ("replica_groups={{0,1},{2,3}}", "inside"),
        ("replica_groups={{0,2},{1,3}}", "between"),
        ("replica_groups={}", "between"),
        ("replica_groups={{0,1,2,3}}", "between"),
        ("replica_groups=[2,2]<=[4]", "inside"),
        ("replica_groups=[2,2]<=[2,2]T(1,0)", "between"),
        ("replica_groups=[1,4]<=[4]", "between"),
        ("source_target_pairs={{0,1},{1,0}}", "inside"),
        ("source_target_pairs={{0,2},{2,0}}", "between"),
    ],
)
def test_collectives_are_counted_by_the_hosts_of_their_groups(groups, place):
    """Devices 0 and 1 are on one host, 2 and 3 on another."""
    line = f"  %x = f32[8,2]{{1,0}} all-to-all(%a), channel_id=1, {groups}, dimensions={{0}}\n"
    found = exchanged_by_hosts(HEAD + line + line, [0, 0, 1, 1])
    assert found.pop(place) == {"all-to-all": [2, 128]}
    assert list(found.values()) == [{}]


def test_groups_that_are_written_in_another_way_are_an_error():
    with pytest.raises(ValueError, match="must be lists or counts of devices"):
        exchanged_by_hosts("  %x = f32[8]{0} all-reduce(%a), channel_id=1, replica_groups=whole\n", [0, 1])


#: A sum of which a device keeps a part, by a slice of its own and inside a fusion, as the compiler of TPUs writes a reduce-scatter; and sums that stay whole.
SCATTERED = """\
HloModule m, entry_computation_layout={(f32[64]{0})->f32[4]{0}}

%fused_computation (param_0: f32[16], param_1: f32[4]) -> f32[4] {
  %param_0 = f32[16]{0:T(256)} parameter(0)
  %param_1 = f32[4]{0} parameter(1)
  %dynamic-slice.2 = f32[8]{0} dynamic-slice(%param_0, %c), dynamic_slice_sizes={8}
  ROOT %add.1 = f32[4]{0} add(%dynamic-slice.2, %param_1)
}

%fused_computation.1 (param_2: f32[16]) -> f32[16] {
  %param_2 = f32[16]{0} parameter(0)
  ROOT %multiply = f32[16]{0} multiply(%param_2, %param_2)
}

ENTRY %main (p: f32[64]) -> f32[4] {
  %p = f32[64]{0} parameter(0)
  %all-reduce = f32[64]{0:T(1024)S(1)} all-reduce(%p), replica_groups={{0,1,2,3},{4,5,6,7}}, to_apply=%sum
  %dynamic-slice.1 = f32[16]{0} dynamic-slice(%all-reduce, %c), dynamic_slice_sizes={16}
  %all-reduce.1 = f32[16]{0} all-reduce(%dynamic-slice.1), replica_groups={{0,4},{1,5},{2,6},{3,7}}, to_apply=%sum
  %fusion = f32[4]{0} fusion(%all-reduce.1, %w), kind=kLoop, calls=%fused_computation
  %all-reduce.2 = f32[16]{0} all-reduce(%dynamic-slice.1), replica_groups={{0,1,2,3,4,5,6,7}}, to_apply=%sum
  %fusion.1 = f32[16]{0} fusion(%all-reduce.2), kind=kLoop, calls=%fused_computation.1
  %all-reduce.3 = f32[64]{0} all-reduce(%p), replica_groups={{0,1,2,3,4,5,6,7}}, to_apply=%sum
  %dynamic-slice.3 = f32[16]{0} dynamic-slice(%all-reduce.3, %c), dynamic_slice_sizes={16}
  %all-reduce.4 = f32[64]{0} all-reduce(%p), replica_groups={{0,1,2,3},{4,5,6,7}}, to_apply=%sum
  %dynamic-slice.4 = f32[1]{0} dynamic-slice(%all-reduce.4, %c), dynamic_slice_sizes={1}
  ROOT %all-gather = f32[64]{0} all-gather(%all-reduce.3), replica_groups={{0,1,2,3},{4,5,6,7}}, dimensions={0}
}
"""


def test_a_sum_of_which_a_device_keeps_a_part_is_a_reduce_scatter():
    assert scattered_sums(SCATTERED) == {"all-reduce", "all-reduce.1"}
    assert exchanged(SCATTERED)["collectives"] == {"all-gather": 1, "all-reduce": 3, "reduce-scatter": 2}


def test_collectives_are_counted_by_the_devices_that_exchange():
    assert exchanged_along(SCATTERED, [[0, 1, 2, 3], [4, 5, 6, 7]]) == {"all-reduce": [2, 512], "all-gather": [1, 256]}
    assert exchanged_along(SCATTERED, [[4, 0], [1, 5], [2, 6], [3, 7]]) == {"all-reduce": [1, 64]}
    assert exchanged_along(SCATTERED, [[0, 1], [2, 3], [4, 5], [6, 7]]) == {}
