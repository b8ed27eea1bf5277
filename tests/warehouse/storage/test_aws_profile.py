"""Profiles in the shared files of AWS."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from transforms.errors import HeadraceError, StorageError
from warehouse.storage.aws_profile import profile_settings

CREDENTIALS = "[default]\naws_access_key_id = A\naws_secret_access_key = B%C\n\n[work]\naws_access_key_id=W\naws_secret_access_key=X\naws_session_token=T\n"
CONFIG = "[default]\nregion = eu-west-1\n[profile work]\nregion=us-west-2\nendpoint_url=http://here:1\n[profile sso]\nsso_session = s\n"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(CREDENTIALS)
    (tmp_path / ".aws" / "config").write_text(CONFIG)
    return {"HOME": str(tmp_path)}


def test_the_default_profile_gives_keys_and_region(files: dict[str, str]) -> None:
    assert profile_settings(files) == {"access_key_id": "A", "secret_access_key": "B%C", "region": "eu-west-1"}


def test_a_named_profile(files: dict[str, str]) -> None:
    assert profile_settings({**files, "AWS_PROFILE": "work"}) == {
        "access_key_id": "W", "secret_access_key": "X", "session_token": "T", "region": "us-west-2", "endpoint": "http://here:1",
    }  # fmt: skip


def test_the_environment_wins(files: dict[str, str]) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "E", "AWS_SECRET_ACCESS_KEY": "F"}
    assert profile_settings({**files, **keys}) == {"region": "eu-west-1"}
    assert profile_settings({**files, **keys, "AWS_REGION": "r", "AWS_PROFILE": "work"}) == {
        "endpoint": "http://here:1"
    }
    assert profile_settings({**files, "AWS_DEFAULT_REGION": "r"}).keys() == {"access_key_id", "secret_access_key"}


def test_a_profile_without_keys_says_how_to_get_them(files: dict[str, str]) -> None:
    for name in ("sso", "absent"):
        with pytest.raises(StorageError, match="must have keys") as caught:
            profile_settings({**files, "AWS_PROFILE": name})
        assert f"--profile {name}" in caught.value.next_step


def test_no_files_give_nothing(tmp_path: Path) -> None:
    assert profile_settings({"HOME": str(tmp_path)}) == {}


@pytest.mark.medium
@settings(max_examples=scaled(300))
@given(st.binary(max_size=200) | st.text(alphabet="[]=%default \nkey_aws", max_size=80).map(str.encode))
def test_any_file_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "credentials"
    path.write_bytes(content)
    found, refused = {}, ""
    try:
        found = profile_settings({"AWS_SHARED_CREDENTIALS_FILE": str(path), "HOME": "/nowhere"})
    except HeadraceError as error:
        refused = error.where
    assert refused in ("", str(path))
    assert all(isinstance(value, str) and value for value in found.values())
