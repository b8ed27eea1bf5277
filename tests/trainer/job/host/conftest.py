"""What tests of hosts prepare once."""

from __future__ import annotations

import pytest

from tests.trainer.job.host.training_ways import batches_of, config_of


@pytest.fixture(scope="module")
def prepared_of(tmp_path_factory):
    """By name of a network: its options, and what a run has prepared, with its batches."""

    def prepare(name, **options):
        chosen = config_of(tmp_path_factory.mktemp("run"), name, **options)
        return chosen, *batches_of(chosen)

    return prepare
