"""The device of the dense part: the CPU, or GPUs that TensorFlow sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import typer

from headrace.cli.options.option_groups import command_line
from headrace.terminal.quiet import Gpus, import_tensorflow_quietly, let_gpus_be_seen
from transforms.errors import InputError

CPU, GPU = "cpu", "gpu"


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """Where the dense part is trained without TPUs; tables are in memory or on servers. Raises :class:`InputError` for another device."""

    PANEL: ClassVar[str] = "Device"

    device: Annotated[
        str,
        typer.Option(metavar="cpu|gpu", help="Train the dense part on the CPU, or on a GPU of each host's machine.", show_default=False),
    ] = CPU  # fmt: skip

    def __post_init__(self) -> None:
        if self.device not in (CPU, GPU):
            raise InputError("--device must be a known one", where="--device", value=self.device[:100], allowed=f"{CPU}, {GPU}",
                             next_step="give --tpu to train on TPUs")  # fmt: skip

    @property
    def has_gpu(self) -> bool:
        """Whether GPUs train."""
        return self.device == GPU

    def arguments(self) -> list[str]:
        """The options of a process that trains on this device."""
        return command_line(self)

    def let_be_seen(self, *, trains: bool = True) -> None:
        """Let TensorFlow of this process see the device, or of the processes that it starts, if it does not train itself."""
        if self.has_gpu:
            let_gpus_be_seen(Gpus.OWN if trains else Gpus.OF_CHILDREN)

    def use(self) -> None:
        """Set TensorFlow up for the device. Raises :class:`~trainer.errors.ConfigError` for a GPU that it does not see."""
        if self.has_gpu:
            import_tensorflow_quietly()
            from trainer.model.tensorflow_settings import use_gpus

            use_gpus()

    def check(self) -> None:
        """Raise :class:`~trainer.errors.ConfigError` for a GPU that processes which this one starts would not see; it is not used here."""
        if self.has_gpu:
            self.let_be_seen(trains=False)
            import_tensorflow_quietly()
            from trainer.model.tensorflow_settings import check_gpus

            check_gpus()
