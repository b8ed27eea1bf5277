"""What was written of a model's inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.reading import Reading
    from headrace.screens.reading import ReadScreen


def written_inputs(reading: Reading, output: str, kind: str, rows: int, size_bytes: int) -> ReadScreen:
    """The file ``output`` of this kind, which has the rows of a read."""
    from headrace.screens.reading import ReadScreen

    solution = reading.solution
    return ReadScreen(
        model=solution.model,
        version=solution.model_version,
        table=solution.table,
        table_version=solution.table_version,
        output=output,
        format=kind,
        rows=rows,
        partitions=len(solution.partitions),
        first_partition=solution.partitions[0].key,
        last_partition=solution.partitions[-1].key,
        columns=(
            *(item.name for item in solution.inputs),
            *([reading.label] if reading.label else []),
            *reading.columns,
        ),
        columns_read={action: solution.count(action) for action in ("load", "compute", "raw")},
        size_bytes=size_bytes,
    )
