"""The log that an import reads: text with a schema file, or Parquet with a time column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from headrace.cli.infer import missing_schema
from transforms.errors import InputError

if TYPE_CHECKING:
    from pipelines.log_schemas.schema import LogSchema
    from pipelines.parsing.parquet import ParquetLog
    from pipelines.parsing.sources import FoundFile

_MAGIC = b"PAR1"


@dataclass(frozen=True, slots=True)
class ParquetOptions:
    """The options for Parquet files; empty if not given."""

    time_column: str = ""
    time_unit: str = ""
    partition_by: str = ""
    invalid_text: str = "refuse"

    @property
    def given(self) -> str:
        """The first given option that only Parquet files have, or ""."""
        options = {
            "--time-column": self.time_column,
            "--time-unit": self.time_unit,
            "--partition-by": self.partition_by,
        }
        return next((option for option, value in options.items() if value), "")


def log_of(files: Sequence[str], schema: str, options: ParquetOptions) -> LogSchema | ParquetLog:
    """The log in ``files``. Raises :class:`InputError` for options of other files, and what reading a schema raises."""
    from pipelines.log_schemas.schema import LogSchema
    from pipelines.parsing.sources import find_files

    found = find_files(files)
    paths = [file.path for file in found]
    kinds = {_is_parquet(path): path for path in reversed(paths)}
    if len(kinds) > 1:
        raise InputError("files of one import must be all Parquet or all text", where=kinds[False],
                         value=f"text, next to {kinds[True]}", next_step="import them one after the other")  # fmt: skip
    if True in kinds:
        return _parquet(found, schema, options)
    if options.given:
        raise InputError("this option needs Parquet files", where=options.given, value=paths[0],
                         next_step="set it in the schema file: docs/importing.md")  # fmt: skip
    if not schema or not Path(schema).exists():
        raise missing_schema(list(files), schema)
    return LogSchema.from_file(schema)


def _parquet(files: Sequence[FoundFile], schema: str, options: ParquetOptions) -> ParquetLog:
    from pipelines.log_schemas.schema import PartitionBy
    from pipelines.parsing.parquet import EpochUnit, parquet_log

    if schema:
        raise InputError("a schema file needs text files", where="--schema", value=files[0].path,
                         next_step="leave it out: Parquet files hold their types; --time-column names the time")  # fmt: skip
    levels = {str(Path(file.path).absolute()): tuple(file.folders.columns.items()) for file in files}
    return parquet_log(
        [*levels],
        options.time_column,
        unit=_choice("--time-unit", options.time_unit, EpochUnit),
        partition_by=_choice("--partition-by", options.partition_by, PartitionBy),
        invalid_text=options.invalid_text,
        levels=levels,
    )


def _choice(option: str, value: str, choices: Any) -> Any:
    if value and value not in get_args(choices):
        raise InputError(
            "an option must be one of its choices", where=option, value=value, allowed=", ".join(get_args(choices))
        )
    return value or None


def _is_parquet(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC
