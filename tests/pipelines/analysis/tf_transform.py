"""tf.Transform's results, for comparison."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from typing import Any


def vocabularies(
    events: Sequence[Mapping[str, Any]], spec: Mapping[str, Any], wanted: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[str]]:
    """Vocabularies by name, of one pass: ``wanted`` holds what ``tft.vocabulary`` is given, columns by their names."""
    import apache_beam as beam
    import tensorflow_transform as tft
    import tensorflow_transform.beam as tft_beam

    def preprocess(inputs: dict[str, Any]) -> dict[str, Any]:
        for name, given in wanted.items():
            columns = {key: inputs[given[key]] for key in ("x", "labels", "weights") if key in given}
            tft.vocabulary(**(dict(given) | columns), vocab_filename=name, file_format="tfrecord_gzip")
        return {"row": inputs["row"]}

    folder = tempfile.mkdtemp()
    with beam.Pipeline() as pipeline, tft_beam.Context(temp_dir=f"{folder}/tmp"):
        metadata = tft.DatasetMetadata.from_feature_spec(dict(spec))
        # One bundle: the last bits of what several accumulators are merged to depend on how they were dealt out.
        data = pipeline | beam.Create([dict(event) for event in events], reshuffle=False)
        transform_fn = (data, metadata) | tft_beam.AnalyzeDataset(preprocess)
        _ = transform_fn | tft_beam.WriteTransformFn(f"{folder}/out")
    output = tft.TFTransformOutput(f"{folder}/out")
    return {name: [term.decode() for term in output.vocabulary_by_name(name)] for name in wanted}
