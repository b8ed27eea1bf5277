"""Functions that the user writes, named by options: found by their paths, identified by their code. Without TensorFlow.

Other processes of a job import a function by the same path, and compare its code with that of the run.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainer.errors import ConfigError, RunMismatch
from trainer.model.tensorflow_loading import load_tensorflow
from trainer.options.config import TrainConfig
from transforms.errors import HeadraceError, nearest
from transforms.functions.bundle import write_bundle
from transforms.functions.outside import resolve
from transforms.installation import IS_WHEEL, PARTS

_NEXT_STEP = "put the module's folder on PYTHONPATH, or start the command in it"


def with_code_digests(config: TrainConfig) -> TrainConfig:
    """The configuration with the digests of the code of its functions; unchanged without any.

    Raises :class:`ConfigError` for a function that cannot be imported, and
    :class:`~transforms.functions.errors.Unfingerprintable` for code without a digest.
    """
    if config.has_own_code:
        load_tensorflow()  # which their modules import
    if config.has_own_network:
        config = replace(config, network_digest=_digest_of(_imported(config.network, "network"), config.network))
    if config.embeddings:
        function = _imported(config.embeddings, "embeddings")
        config = replace(config, embeddings_digest=_digest_of(function, config.embeddings))
    return config


def network_function(config: TrainConfig) -> Callable[..., Any]:
    """The function of the network. Raises also :class:`RunMismatch` if its code is not that of the run."""
    return _function(config.network, "network", config.network_digest)


def embeddings_function(config: TrainConfig) -> Callable[..., Any]:
    """The function of the embeddings; raises as :func:`network_function`."""
    return _function(config.embeddings, "embeddings", config.embeddings_digest)


def _function(path: str, option: str, expected: str) -> Callable[..., Any]:
    function = _imported(path, option)
    if expected and (digest := _digest_of(function, path)) != expected:
        raise RunMismatch(f"the function of {option} must have the code that the run began with, got other code", where=path,
                          value=digest[:12], allowed=expected[:12],
                          next_step="restore the function and what it reaches, or train in another run directory")  # fmt: skip
    return function


def _imported(path: str, option: str) -> Callable[..., Any]:
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
        raise ConfigError(f"the function of {option} must be in its module", where=f"{option} {path}", value=str(error),
                          allowed=nearest(name, known)) from error  # fmt: skip
    except Exception as error:
        raise ConfigError(f"the module of {option} must be importable", where=f"{option} {path}",
                          value=f"{type(error).__name__}: {error}", next_step=_next_step(module)) from error  # fmt: skip
    finally:
        sys.path.remove(folder)
    if not callable(found):
        raise ConfigError(f"{option} must be a function", where=f"{option} {path}", value=type(found).__name__)
    return found


def _next_step(module: str) -> str:
    top = module.partition(".")[0]
    if top in PARTS and not IS_WHEEL:
        return (
            f"install Headrace's wheel, or give the package another name: in a checkout {top} is a package of Headrace"
        )
    return _NEXT_STEP


def _digest_of(function: object, path: str) -> str:
    """SHA-256 of the function and all that it reaches, without the versions of packages, as for built-in networks."""
    document = json.loads(write_bundle(function, path).text)
    del document["packages"]
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
