"""Which compressions the messages of embedding tables have."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.errors import ConfigError

#: How ids and row numbers are sent.
IDS = ("plain", "unique")
#: How rows and gradients are sent.
VALUES = ("float32", "fp16", "fp14")
#: How dense gradients are sent between hosts: as they are, or rounded to the nearest bfloat16 (``bfloat16.py``).
DENSE_VALUES = ("float32", "bf16")


@dataclass(frozen=True, slots=True)
class WireSettings:
    """The encodings of messages; each is chosen by itself. Messages to parameter servers name theirs, so servers have no settings.

    Attributes:
        ids: ``plain``: as they are; ``unique``: distinct ids and positions (``id_positions.py``), and differences of row numbers
            (``row_numbers.py``). Both are lossless.
        values: ``float32``: as they are; ``fp16``: blocks of 16-bit floats (``fp16_blocks.py``), half the bytes, relative error at
            most 2^-11; ``fp14``: of 14 bits (``fp14_blocks.py``), 0.44 of the bytes, 2^-10.

    Raises :class:`ConfigError` for other names.
    """

    ids: str = "plain"
    values: str = "float32"

    def __post_init__(self) -> None:
        for name, value, allowed in (("ids", self.ids, IDS), ("values", self.values, VALUES)):
            if value not in allowed:
                raise ConfigError(
                    f"{name} on the wire must have a known encoding", value=value, allowed=", ".join(allowed)
                )
