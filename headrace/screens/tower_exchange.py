"""The lines of a training screen about what hosts have sent by towers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.terminal.units import bytes_text, many, percent_text

if TYPE_CHECKING:
    from trainer.tables.tower_figures import TowerFigures


#: Where a larger share of tables goes as rows, hosts without towers send about as many bytes.
_MOST_ROWS = 0.9


def tower_lines(figures: TowerFigures) -> list[str]:
    """What moved between machines and inside them, and in which form tables went to their towers."""
    tables = figures.as_rows + figures.as_bags
    lines = [
        f"{bytes_text(figures.between_bytes)} between machines in {many(figures.between_messages, 'message')}, "
        f"{bytes_text(figures.inside_bytes)} inside them"
    ]
    if tables:
        share = percent_text(figures.as_rows / tables)
        lines.append(
            f"{share} of the tables of batches went as rows, which are fewer bytes there than combined bags; others went as bags"
        )
        if figures.as_rows > _MOST_ROWS * tables:
            lines.append("towers spare few bytes between machines here: a run without --towers is likely as fast")
    return lines
