"""Simulated gradient sums of 16 to 4,096 chips: one ring of all chips, or two legs, along columns and rows.

    python -m benchmarks.gradient_legs [--picture docs/gradient-legs.svg]

Then the shares of a step that the multipod paper states (Kumar et al., MLSys 2021), beside those of the simulation, with what had to be assumed.
**Nothing here is measured.**
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.support.gradient_legs import TPU_V3, MeshChip, Rectangle, leg_bytes, ring_secs, two_leg_secs
from benchmarks.support.line_chart import Curve, line_chart

#: Rows are rings of at most 32 chips; a multipod has four squares of 32 x 32 side by side.
SHAPES = (Rectangle(4, 4), Rectangle(8, 8), Rectangle(16, 16), Rectangle(32, 32), Rectangle(64, 32), Rectangle(128, 32))


@dataclass(frozen=True, slots=True)
class Trained:
    """A model of the paper.

    Attributes:
        weights: their number.
        gradient_bytes: of each weight, when summed.
        example_flops: operations of an example, forward and backward.
        batch: examples of a step, on all chips.
    """

    name: str
    weights: float
    gradient_bytes: int
    example_flops: float
    batch: int

    @property
    def summed_bytes(self) -> float:
        """Of all gradients."""
        return self.weights * self.gradient_bytes

    def compute_secs(self, chips: int, chip: MeshChip) -> float:
        """Forward and backward on one chip."""
        return self.example_flops * self.batch / chips / (chip.flops_per_sec * chip.reached)


#: 4.1 G multiplications an image; 6 operations a weight and token, 512 tokens. Batches: of MLPerf v0.7; that of BERT is assumed.
RESNET = Trained("ResNet-50", 25.6e6, 4, 3 * 2 * 4.1e9, 65_536)
BERT = Trained("BERT", 334e6, 4, 6 * 334e6 * 512, 8_192)
#: What the paper states of the step at 4,096 chips.
STATED = {RESNET.name: 0.22, BERT.name: 0.273}


def share_of_sum(model: Trained, shape: Rectangle, chip: MeshChip = TPU_V3) -> float:
    """The share of a step that the two legs take, after forward and backward."""
    summed = two_leg_secs(model.summed_bytes, shape, chip).all
    return summed / (summed + model.compute_secs(shape.chips, chip))


def share_of_lamb(model: Trained, shape: Rectangle, chip: MeshChip = TPU_V3, *, shards: int = 1) -> float:
    """The share of a step that LAMB's update takes: it reads weight, gradient and two slots, twice, and writes three of them."""
    update = 11 * 4 * model.weights / shards / (chip.memory_bytes_per_sec * chip.reached)
    summed = two_leg_secs(model.summed_bytes, shape, chip).all
    return update / (update + summed + model.compute_secs(shape.chips, chip))


def main() -> None:
    """Print the tables; write the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    print("simulated, not measured; TPU v3, 102 MB of gradients (ResNet-50 in float32)")
    print(
        f"{'chips':>6} {'X x Y':>9} {'ring':>10} {'two legs':>10} {'of it Y':>9} {'X':>9} {'ring / legs':>12} {'bytes on X / Y':>15}"
    )
    times = []
    for shape in SHAPES:
        ring, legs = (find(RESNET.summed_bytes, shape, TPU_V3) for find in (ring_secs, two_leg_secs))
        y, x = leg_bytes(RESNET.summed_bytes, shape)
        times.append((ring.all * 1e3, legs.all * 1e3))
        print(f"{shape.chips:>6,} {f'{shape.columns} x {shape.rows}':>9} {ring.all * 1e3:>7.2f} ms {legs.all * 1e3:>7.2f} ms {legs.y * 1e3:>6.2f} ms "
              f"{legs.x * 1e3:>6.2f} ms {ring.all / legs.all:>11.2f}x {x / y:>15.4f}")  # fmt: skip
    print("\nshares of a step, simulated beside the paper's")
    for model in (RESNET, BERT):
        halved = replace(model, gradient_bytes=2)
        print(f"  {model.name}, sum at 4,096 chips, batch {model.batch:,}: {share_of_sum(model, SHAPES[-1]):.1%} in float32, "
              f"{share_of_sum(halved, SHAPES[-1]):.1%} in bfloat16; stated {STATED[model.name]:.1%}")  # fmt: skip
    square = Rectangle(32, 16)
    print(f"  BERT, LAMB's update at 512 chips, batch {BERT.batch:,}: {share_of_lamb(BERT, square):.1%}; sharded over the chips "
          f"{share_of_lamb(BERT, square, shards=512):.2%}; stated 18 % before sharding")  # fmt: skip
    print(
        f"  the same with batch {BERT.batch // 4:,}: {share_of_lamb(replace(BERT, batch=BERT.batch // 4), square):.1%}"
    )
    if options.picture:
        chips = [math.log10(shape.chips) for shape in SHAPES]
        ring, legs = ([math.log10(one) for one in column] for column in zip(*times, strict=True))
        curves = [Curve("one ring", "#c0392b", ring), Curve("two legs", "#2471a3", legs)]
        text = line_chart("Simulated: a sum of 102 MB over chips of TPU v3", "chips", "milliseconds", chips, curves)
        options.picture.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
