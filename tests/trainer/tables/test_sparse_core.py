from __future__ import annotations

import pytest

from trainer.errors import ConfigError, UnsupportedSetting
from trainer.tables.sparse_core import (
    SparseCoreSettings,
    sparse_core_settings_from_tensorflow,
    sparse_core_settings_to_tensorflow,
)

tf = pytest.importorskip("tensorflow")
embedding = tf.tpu.experimental.embedding


def test_settings_convert_there_and_back():
    limits = {"a_b": 512, "c": 8}
    settings = SparseCoreSettings(True, 16, limits, {"a_b": 300}, default_max_ids=128, default_max_unique_ids=64)
    config = sparse_core_settings_to_tensorflow(settings)
    assert sparse_core_settings_from_tensorflow(config) == settings
    assert config.max_ids_per_table["a_b"] == settings.max_ids("a_b") == 512
    assert config.max_ids_per_table["another"] == settings.max_ids("another") == 128
    assert config.max_unique_ids_per_table["another"] == settings.max_unique_ids("another") == 64
    default = sparse_core_settings_from_tensorflow(embedding.SparseCoreEmbeddingConfig())
    assert default == SparseCoreSettings()


def test_every_setting_is_known():
    """A release of TensorFlow with another setting must be looked at before it is used."""
    ours = set(SparseCoreSettings.__dataclass_fields__)
    theirs = set(embedding.SparseCoreEmbeddingConfig.__dataclass_fields__)
    assert theirs - ours == {"initialize_tables_on_host", "enable_fast_table_initialization"}
    assert ours - theirs == {"default_max_ids", "default_max_unique_ids", "stacks", "replicated"}


@pytest.mark.parametrize(
    ("settings", "kind", "name"),
    [
        ({"allow_id_dropping": True}, ConfigError, "allow_id_dropping"),
        ({"max_ids_per_chip_per_sample": 0}, ConfigError, "max_ids_per_chip_per_sample"),
        ({"max_ids_per_table": {"a": -1}}, ConfigError, "max_ids_per_table"),
        ({"max_unique_ids_per_table": {"a": 1.5}}, ConfigError, "max_unique_ids_per_table"),
        ({"initialize_tables_on_host": False}, UnsupportedSetting, "initialize_tables_on_host"),
        ({"enable_fast_table_initialization": True}, UnsupportedSetting, "enable_fast_table_initialization"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(settings, kind, name):
    with pytest.raises(kind, match=name):
        sparse_core_settings_from_tensorflow(embedding.SparseCoreEmbeddingConfig(**settings))
