"""An unchanged tf.Transform preprocessing_fn with analyzers, on the sample search-ads log.

headrace model submit examples/preprocessing_fn.py --table search_log --analyze
"""

import tensorflow as tf
import tensorflow_transform as tft

import headrace as hr


def preprocessing_fn(inputs):
    """The inputs of the model, by tf.Transform's analyzers."""
    price = tft.sparse_tensor_to_dense_with_shape(inputs["price"], [None, 1], 0.0)
    return {
        "category": tft.compute_and_apply_vocabulary(inputs["category"], num_oov_buckets=1),
        "price": tft.scale_to_z_score(tf.math.log1p(price)),
        "position": tft.bucketize(inputs["position"], 4),
        "words": tf.strings.to_hash_bucket_fast(tf.strings.lower(inputs["query"]), 10_000),
    }


FEATURES = {
    "category": tf.io.FixedLenFeature([1], tf.string, ""),
    "price": tf.io.VarLenFeature(tf.float32),
    "position": tf.io.FixedLenFeature([1], tf.int64, 0),
    "query": tf.io.FixedLenFeature([1], tf.string, ""),
}

model = hr.Model("preprocessing_fn", client="search", label="clicked")
for name, expression in hr.from_preprocessing_fn(
    preprocessing_fn, FEATURES, over=hr.between("2026-03-02", "2026-03-03")
).items():
    model.input(name, expression)
