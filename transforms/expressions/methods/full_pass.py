"""Full-pass operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from transforms.errors import InputError
from transforms.expressions.methods.base import Methods
from transforms.time_range import TimeRange, moment_text


class FullPassMethods(Methods):
    """Full-pass operators. ``over`` is the range they are analyzed over, such as ``between("2026-01-01", "2026-01-08")``."""

    __slots__ = ()

    def vocabulary_ids(
        self,
        *,
        over: TimeRange,
        top_k: int = 0,
        min_frequency: float | None = None,
        oov_buckets: int = 1,
        label: Self | None = None,
        weights: Self | None = None,
        use_adjusted_mutual_info: bool | None = None,
        min_diff_from_avg: float | None = None,
        min_information: float | None = None,
        fingerprint_shuffle: bool = False,
        **others: object,
    ) -> Self:
        """Ids by frequency, or by mutual information with ``label``; values outside the vocabulary share ``oov_buckets``.

        The options are those of ``tft.compute_and_apply_vocabulary``: ``label`` is its ``labels``, ``min_frequency`` and
        (beside a label) ``min_information`` its ``frequency_threshold``. ``weights`` is the weight of an event. Raises
        :class:`InputError` for an option of tf.Transform's that has no meaning here.
        """
        _refuse(others)
        information = {"use_adjusted_mutual_info": use_adjusted_mutual_info, "min_diff_from_avg": min_diff_from_avg,
                       "min_information": min_information}  # fmt: skip
        frequency = {"min_frequency": min_frequency}
        sought, other = (frequency, information) if label is None else (information, frequency)
        _refuse_given(other, "without" if label is None else "beside")
        common = {
            "top_k": top_k,
            "oov_buckets": oov_buckets,
            "fingerprint_shuffle": fingerprint_shuffle,
            **_range(over),
        }
        params = common | {option: value for option, value in sought.items() if value is not None}
        if label is None:
            if weights is None:
                return self._apply("vocabulary_ids", **params)
            return self._apply("weighted_vocabulary_ids", weights, **params)
        if weights is None:
            return self._apply("labelled_vocabulary_ids", label, **params)
        return self._apply("weighted_labelled_vocabulary_ids", label, weights, **params)

    def quantile_buckets(self, n: int, *, over: TimeRange) -> Self:
        """The index of one of ``n`` intervals that hold about equally many values."""
        return self._apply("quantile_buckets", n=n, **_range(over))

    def standardize_over(self, *, over: TimeRange) -> Self:
        """(x - mean) / standard deviation."""
        return self._apply("standardize_over", **_range(over))

    def z_score(self, *, over: TimeRange) -> Self:
        """An alias of :meth:`standardize_over`."""
        return self.standardize_over(over=over)

    def min_max_over(self, *, over: TimeRange) -> Self:
        """(x - least) / (greatest - least), held within [0, 1]."""
        return self._apply("min_max_over", **_range(over))


#: The refused options of ``tft.compute_and_apply_vocabulary``, each with the reason and the next step.
_REFUSED = {
    "labels": ("the option is called label here", "label=hr.boolean(...)"),
    "frequency_threshold": ("the option is called min_frequency here, and min_information beside a label", "min_frequency=N"),
    "num_oov_buckets": ("the option is called oov_buckets here", "oov_buckets=N"),
    "default_value": ("values outside the vocabulary have ids of their own, after its size", "oov_buckets=N"),
    "store_frequency": ("an artifact holds terms only, so that equal vocabularies are one", "leave it out: ids are the same"),
    "key_fn": ("a vocabulary with coverage calls Python for each term", "one input per key, each with its own vocabulary"),
    "coverage_top_k": ("a vocabulary with coverage calls Python for each term", "one input per key, each with its own vocabulary"),
    "coverage_frequency_threshold": ("a vocabulary with coverage calls Python for each term",
                                     "one input per key, each with its own vocabulary"),
    "reserved_tokens": ("a vocabulary holds what the range holds", "an input of their own: hr.text(...).is_in([...])"),
    "file_format": ("empty text and text with line breaks are terms, as with file_format='tfrecord_gzip'",
                    "leave it out"),
    "vocab_filename": ("an artifact is named by its digest", "leave it out"),
}  # fmt: skip


def _refuse(others: Mapping[str, object]) -> None:
    for name in others:
        if name not in _REFUSED:
            raise InputError("vocabulary_ids has no such option", value=name,
                             allowed="top_k, min_frequency, oov_buckets, over, label, weights, use_adjusted_mutual_info, "
                             "min_diff_from_avg, min_information, fingerprint_shuffle")  # fmt: skip
        reason, instead = _REFUSED[name]
        raise InputError(f"vocabulary_ids does not take {name}: {reason}", value=name, next_step=instead)


def _refuse_given(options: Mapping[str, object], how: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise InputError(f"{name} has no meaning {how} a label", value=f"{name}={value}",
                             allowed="a vocabulary by label is cut by top_k and min_information, "
                             "one by frequency by top_k and min_frequency")  # fmt: skip


def _range(over: TimeRange) -> dict[str, str]:
    if not isinstance(over, TimeRange):
        raise InputError(
            "over must be a range from hr.between", value=over, next_step='over=hr.between("2026-01-01", "2026-01-08")'
        )
    return {"start": moment_text(over.start), "end": moment_text(over.end)}
