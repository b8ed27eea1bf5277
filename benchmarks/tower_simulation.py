"""A training iteration with one flat exchange of activations against one by towers, simulated part by part at 16 to 512 chips.

    python -m benchmarks.tower_simulation

DLRM- and DCN-like models of 26 features of 128 columns, one id each, and 16,384 events a chip (weak scaling). The times are those of a model
(``benchmarks/support/iteration_time.py``) with published rates of chips and stated assumptions, no measurements. Luo et al. (MLSys 2024) report
1.4x to 1.9x at up to 64 hosts; the last tables say on which assumptions that depends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.support.dense_shapes import (
    DCN,
    DCN_MODULE,
    DLRM,
    DLRM_OVER,
    CrossModule,
    DenseShape,
    ModuleShape,
    ProjectionModule,
    even_towers,
    tower_flops,
)
from benchmarks.support.host_topologies import REACHED, ReachedShares, host_topology
from benchmarks.support.iteration_time import (
    TowerModules,
    TowerShape,
    TrainedModel,
    flat_iteration,
    tower_count,
    tower_iteration,
)

FEATURES, WIDTH, CHIP_EVENTS = 26, 128, 16_384
CHIPS = (16, 32, 64, 128, 256, 512)
KINDS = ("v100", "a100", "h100", "v5p", "v6e", "v5p-torus")
COMPRESSIONS = (1.0, 2.0, 4.0)
TARGET = (1.4, 1.9)


def model_of(dense: DenseShape) -> TrainedModel:
    return TrainedModel(dense, FEATURES, WIDTH, 1.0, CHIP_EVENTS)


def modules_of(dense: DenseShape, towers: int, compression: float) -> TowerModules | None:
    """The paper's modules: a projection of each feature for a DLRM, or of a tower's columns to one vector where 26 features are in 16 towers."""
    if compression == 1:
        return None
    if dense.cross_layers:
        return TowerModules(CrossModule(dense.cross_rank, ratio=compression), dense)
    if (towers, compression) == (16, 2.0):
        return TowerModules(ProjectionModule(WIDTH, combinations=0, projections=1), DLRM_OVER)
    return TowerModules(ProjectionModule(round(WIDTH / compression)), DLRM_OVER)


def shape_of(dense: DenseShape, hosts: int, compression: float, *, sliced: bool = True) -> TowerShape:
    """A tower for each host: columns of tables are cut into the fewest slices that are enough; else fewer towers of several hosts."""
    slices = -(-hosts // FEATURES) if sliced else 1
    while sliced and WIDTH % slices:
        slices += 1
    towers = tower_count(FEATURES * slices, hosts)
    return TowerShape(towers, modules_of(dense, towers, compression), column_slices=slices)


def speed_up(
    kind: str,
    chips: int,
    dense: DenseShape,
    compression: float,
    *,
    sliced: bool = True,
    reached: ReachedShares = REACHED,
) -> float:
    topology = host_topology(f"{kind}:{chips}", reached=reached)
    model = model_of(dense)
    return (
        flat_iteration(model, topology).secs
        / tower_iteration(model, topology, shape_of(dense, topology.hosts, compression, sliced=sliced)).secs
    )


def cell(kind: str, chips: int, dense: DenseShape) -> str:
    if host_topology(f"{kind}:{chips}").hosts == 1:
        return "one host"
    return " ".join(f"{speed_up(kind, chips, dense, compression):.2f}" for compression in COMPRESSIONS)


def by_scale() -> Iterator[str]:
    yield "speed-up of towers over the flat exchange, by compression 1 (no tower modules), 2 and 4"
    yield f"{'':10}{'':6}" + "".join(f"{chips:>18}" for chips in CHIPS) + " chips"
    for kind in KINDS:
        for dense in (DLRM, DCN):
            cells = (cell(kind, chips, dense) for chips in CHIPS)
            yield f"{kind:10}{dense.name:6}" + "".join(f"{cell:>18}" for cell in cells)


def by_part(kind: str, chips: int, compression: float) -> Iterator[str]:
    topology = host_topology(f"{kind}:{chips}")
    shape = shape_of(DLRM, topology.hosts, compression)
    yield f"parts of an iteration, {kind}:{chips}, {topology.hosts} hosts, {shape.towers} towers, columns in {shape.column_slices} slices, compression {compression:g}: milliseconds"
    for dense in (DLRM, DCN):
        shape = shape_of(dense, topology.hosts, compression)
        flat, towers = flat_iteration(model_of(dense), topology), tower_iteration(model_of(dense), topology, shape)
        yield f"{dense.name:20}{'flat':>10}{'towers':>10}"
        for name, secs in flat.parts().items():
            yield f"  {name:18}{secs * 1e3:10.2f}{towers.parts()[name] * 1e3:10.2f}"
        yield f"  {'all':18}{flat.secs * 1e3:10.2f}{towers.secs * 1e3:10.2f}  {flat.secs / towers.secs:.2f}x"


def by_assumption(kind: str, chips: int) -> Iterator[str]:
    yield f"what the speed-up of compression 2 at {kind}:{chips} depends on: DLRM, DCN"
    changes = {
        "as assumed": REACHED,
        "messages take no time": replace(REACHED, message_secs=0.0),
        "messages take 20 µs": replace(REACHED, message_secs=20e-6),
        "links between hosts reach 0.5": replace(REACHED, inter=0.5),
        "links between hosts reach 1": replace(REACHED, inter=1.0),
        "arithmetic reaches 0.2": replace(REACHED, flops=0.2),
        "arithmetic reaches 0.6": replace(REACHED, flops=0.6),
    }
    for name, reached in changes.items():
        both = (speed_up(kind, chips, dense, 2.0, reached=reached) for dense in (DLRM, DCN))
        yield f"  {name:34}" + "".join(f"{one:8.2f}" for one in both)
    both = (speed_up(kind, chips, dense, 2.0, sliced=False) for dense in (DLRM, DCN))
    yield f"  {'towers of several hosts, no slices':34}" + "".join(f"{one:8.2f}" for one in both)


#: Millions of operations of a training step for an event in the paper: by towers and the module of each, for DLRM and DCN.
PAPER_DLRM = (
    ("no towers", 0, None, 14.74),
    *((f"{towers} towers, D = 64", towers, ProjectionModule(64), 8.95) for towers in (2, 4, 8, 26)),
    ("16 towers, one vector each", 16, ProjectionModule(128, combinations=0, projections=1), 8.75),
    ("8 towers, D = 32", 8, ProjectionModule(32), 7.93),
    ("8 towers, D = 16", 8, ProjectionModule(16), 7.41),
    ("8 towers, D = 8", 8, ProjectionModule(8), 7.16),
)
PAPER_DCN = (
    ("no towers", 0, None, 96.22),
    ("2 towers of 128 columns", 2, DCN_MODULE, 43.71),
    ("4 towers of 128 columns", 4, DCN_MODULE, 50.01),
    ("8 towers of 128 columns", 8, DCN_MODULE, 62.60),
)
#: Its cross layers have two matrices of rank 512 also where a full one is smaller.
PAPER_CROSS = replace(DCN, is_factored=True)


def operations() -> Iterator[str]:
    yield "millions of operations of a training step for an event, beside those of the paper's tables 4 and 5"
    for dense, above, rows in ((DLRM, DLRM_OVER, PAPER_DLRM), (PAPER_CROSS, PAPER_CROSS, PAPER_DCN)):
        for name, towers, module, paper in rows:
            found = step_mflops(dense, above, towers, module)
            yield f"  {dense.name:6}{name:28}{found:9.3f}{paper:9.2f}"


def step_mflops(dense: DenseShape, above: DenseShape, towers: int, module: ModuleShape | None) -> float:
    if module is None:
        return dense.step_flops(FEATURES * WIDTH, WIDTH) / 1e6
    return tower_flops(above, module, even_towers(FEATURES, towers), WIDTH) / 1e6


def verdict(kind: str, chips: int) -> Iterator[str]:
    for dense in (DLRM, DCN):
        for compression in COMPRESSIONS:
            found = speed_up(kind, chips, dense, compression)
            place = "below" if found < TARGET[0] else "above" if found > TARGET[1] else "within"
            yield f"{kind}:{chips} {dense.name}, compression {compression:g}: {found:.3f}x, {place} {TARGET[0]}x to {TARGET[1]}x"


def main() -> None:
    sections = (
        operations(),
        by_scale(),
        by_part("a100", 512, 2.0),
        by_part("a100", 512, 1.0),
        by_assumption("a100", 512),
        verdict("a100", 512),
    )
    for section in sections:
        print("\n".join(section), end="\n\n")


if __name__ == "__main__":
    main()
