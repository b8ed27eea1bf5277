"""The function of a network that the user writes: found by its path, identified by its code. Without TensorFlow.

Other processes of a job import the function by the same path, and compare its code with that of the run.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainer.config import TrainConfig
from trainer.errors import ConfigError, RunMismatch
from transforms.errors import HeadraceError, nearest
from transforms.functions.bundle import write_bundle
from transforms.functions.outside import resolve

_NEXT_STEP = "put the module's folder on PYTHONPATH, or start the command in it"


def with_network_digest(config: TrainConfig) -> TrainConfig:
    """The configuration with the digest of its network's code; unchanged for a built-in network.

    Raises :class:`ConfigError` for a function that cannot be imported, and
    :class:`~transforms.functions.errors.Unfingerprintable` for code without a digest.
    """
    if not config.has_own_network:
        return config
    return replace(config, network_digest=_digest_of(_imported(config.network), config.network))


def network_function(config: TrainConfig) -> Callable[..., Any]:
    """The function of the network. Raises also :class:`RunMismatch` if its code is not that of the run."""
    function = _imported(config.network)
    if config.network_digest and (digest := _digest_of(function, config.network)) != config.network_digest:
        raise RunMismatch("a network must have the code that the run began with, got other code", where=config.network,
                          value=digest[:12], allowed=config.network_digest[:12],
                          next_step="restore the function and what it reaches, or train in another run directory")  # fmt: skip
    return function


def _imported(path: str) -> Callable[..., Any]:
    module, _, name = path.partition(":")
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        found = resolve(module, name)
    except HeadraceError:
        raise
    except AttributeError as error:
        known = (
            [each for each, value in vars(sys.modules[module]).items() if callable(value)]
            if module in sys.modules
            else []
        )
        raise ConfigError("a network's function must be in its module", where=f"network {path}", value=str(error),
                          allowed=nearest(name, known)) from error  # fmt: skip
    except Exception as error:
        raise ConfigError("the module of a network must be importable", where=f"network {path}",
                          value=f"{type(error).__name__}: {error}", next_step=_NEXT_STEP) from error  # fmt: skip
    finally:
        sys.path.remove(folder)
    if not callable(found):
        raise ConfigError("a network must be a function that returns a Keras model", where=f"network {path}",
                          value=type(found).__name__)  # fmt: skip
    return found


def _digest_of(function: object, path: str) -> str:
    """SHA-256 of the function and all that it reaches, without the versions of packages, as for built-in networks."""
    document = json.loads(write_bundle(function, path).text)
    del document["packages"]
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
