from __future__ import annotations

from trainer.tpu_check.program_text import exchanged

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
