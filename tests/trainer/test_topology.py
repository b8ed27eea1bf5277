"""TPU slices by name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.errors import ConfigError
from trainer.options.topology import GENERATIONS, Topology

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "chips", "hosts", "sparse_cores", "machine", "vm_type"),
    [
        ("v4:2x2x1", 4, 1, 16, "ct4p-hightpu-4t", "v4-8"),
        ("v4:4x4x8", 128, 32, 512, "ct4p-hightpu-4t", "v4-256"),
        ("v5e:1x1", 1, 1, 0, "ct5lp-hightpu-1t", "v5litepod-1"),
        ("v5e:2x4", 8, 1, 0, "ct5lp-hightpu-8t", "v5litepod-8"),
        ("v5e:4x4", 16, 4, 0, "ct5lp-hightpu-4t", "v5litepod-16"),
        ("v5p:2x2x1", 4, 1, 16, "ct5p-hightpu-4t", "v5p-8"),
        ("v5p:2x2x2", 8, 2, 32, "ct5p-hightpu-4t", "v5p-16"),
        ("v5p:4x4x4", 64, 16, 256, "ct5p-hightpu-4t", "v5p-128"),
        ("v5p:16x16x24", 6144, 1536, 24576, "ct5p-hightpu-4t", "v5p-12288"),
        ("v6e:2x2", 4, 1, 8, "ct6e-standard-4t", "v6e-4"),
        ("v6e:16x16", 256, 64, 512, "ct6e-standard-4t", "v6e-256"),
        ("tpu7x:2x2x1", 4, 1, 16, "tpu7x-standard-4t", ""),
    ],
)
def test_a_slice_has_these_chips_hosts_and_machines(
    text: str, chips: int, hosts: int, sparse_cores: int, machine: str, vm_type: str
) -> None:
    found = Topology.parse(text)
    assert (found.chips, found.hosts, found.sparse_cores) == (chips, hosts, sparse_cores)
    assert (found.machine_type, found.vm_type) == (machine, vm_type)
    assert str(found) == text


def test_a_chip_has_this_memory() -> None:
    found = {one.name: one.hbm_bytes // GIB for one in GENERATIONS}
    assert found == {"v4": 32, "v5e": 16, "v5p": 95, "v6e": 32, "tpu7x": 192}
    assert Topology.parse("v5p:2x2x1").hbm_bytes == 4 * 95 * GIB


@pytest.mark.parametrize("text", ["", "v5p", "v5p:", "v9:2x2", "2x2x1", "V5P:2x2x1", ":2x2"])
def test_a_name_without_a_known_generation_is_refused_with_the_generations(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Topology.parse(text, where="--tpu")
    assert caught.value.where == "--tpu"
    assert "v4, v5e, v5p, v6e, tpu7x" in caught.value.allowed or "v5p: 2x2x1" in caught.value.allowed


@pytest.mark.parametrize(
    "text",
    ["v5p:4x4", "v5p:2x2x3", "v5p:4x4x2", "v5p:8x4x4", "v5p:4x4x28", "v5p:0x4x4", "v5p:4x4x04", "v5p:4x4x4x4",
     "v5p:-4x4x4", "v5p:4X4X4", "v5p:4x4x٤", "v5p:9999999999x4x4", "v6e:2x2x1", "v6e:16x32"],
)  # fmt: skip
def test_a_shape_that_does_not_exist_is_refused_with_those_that_do(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Topology.parse(text)
    assert caught.value.value == text
    assert "2x2" in caught.value.allowed


@given(st.sampled_from(GENERATIONS), st.lists(st.integers(1, 40), min_size=1, max_size=4))
def test_each_slice_is_whole_hosts_and_parses_back(generation, sizes) -> None:  # type: ignore[no-untyped-def]
    text = f"{generation.name}:{'x'.join(map(str, sizes))}"
    if not generation.has_shape(tuple(sizes)):
        with pytest.raises(ConfigError):
            Topology.parse(text)
        return
    found = Topology.parse(text)
    assert found.hosts * found.chips_per_host == found.chips
    assert Topology.parse(str(found)) == found
