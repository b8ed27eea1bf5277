"""Credentials of AWS's shared files, which the client of object stores does not read."""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from pathlib import Path

from transforms.errors import StorageError

#: Variables that give credentials without a profile.
_OTHER_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                      "AWS_CONTAINER_CREDENTIALS_FULL_URI")  # fmt: skip
#: The client's setting of each key of a profile.
_SETTING = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
    "region": "region",
    "endpoint_url": "endpoint",
}


def profile_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The client's settings of the profile ``$AWS_PROFILE``, or ``default``, that the environment does not give itself.

    Raises :class:`StorageError` for a file that is not one of AWS, for a profile that does not exist, and for one that is
    named but has no keys in the files, such as one of a single sign-on.
    """
    named = environment.get("AWS_PROFILE", "")
    found = _profile(environment, named or "default")
    settings = {name: found[key] for key, name in _SETTING.items() if found.get(key)}
    for variable, name in (
        ("AWS_REGION", "region"),
        ("AWS_DEFAULT_REGION", "region"),
        ("AWS_ENDPOINT_URL", "endpoint"),
    ):
        if environment.get(variable):
            settings.pop(name, None)
    if any(environment.get(variable) for variable in _OTHER_CREDENTIALS):
        return {name: value for name, value in settings.items() if name in ("region", "endpoint")}
    if named and not {"access_key_id", "secret_access_key"} <= settings.keys():
        raise StorageError("the profile in $AWS_PROFILE must have keys in the shared files of AWS", value=named,
                           allowed="aws_access_key_id and aws_secret_access_key, or the variables AWS_ACCESS_KEY_ID and "
                           "AWS_SECRET_ACCESS_KEY",
                           next_step=f'eval "$(aws configure export-credentials --profile {named} --format env)"')  # fmt: skip
    return settings


def _profile(environment: Mapping[str, str], name: str) -> dict[str, str]:
    home = Path(environment.get("HOME") or os.path.expanduser("~"))
    config = Path(environment.get("AWS_CONFIG_FILE") or home / ".aws" / "config")
    credentials = Path(environment.get("AWS_SHARED_CREDENTIALS_FILE") or home / ".aws" / "credentials")
    found: dict[str, str] = {}
    for path, section in ((config, name if name == "default" else f"profile {name}"), (credentials, name)):
        parsed = _parse(path)
        if parsed.has_section(section):
            found |= parsed.items(section)
    return found


def _parse(path: Path) -> configparser.RawConfigParser:
    parsed = configparser.RawConfigParser(strict=False, default_section="")
    try:
        parsed.read_string(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        pass
    except (OSError, UnicodeDecodeError, configparser.Error) as error:
        raise StorageError("a shared file of AWS must be readable", where=str(path), value=str(error).splitlines()[0][:200],
                           next_step="correct it, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY") from error  # fmt: skip
    return parsed
