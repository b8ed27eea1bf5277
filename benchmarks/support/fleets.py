"""Fleets of models over one log, with mostly equal inputs.

Every model has the shared inputs of its log and a few of its own: an idea, or a shared input with other settings. In the
paper a component is read by 22 models on average, and 95 % of a model's components are read by others too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from transforms.expressions.expression import Expr, concat, cross, float32, int64, ragged, text, timestamp
from transforms.expressions.model import Model

#: The paper's averages.
MODELS = 22
SHARED = 0.95

LABEL = "clicked"
Expressions = Mapping[str, Expr]


@dataclass(frozen=True)
class Fleet:
    """``shared``: the inputs of every model. ``ideas``: functions from a number to an input of one model, all distinct."""

    table: str
    shared: Expressions
    ideas: Sequence[Callable[[int], Expr]]

    def models(self, count: int = MODELS, share: float = SHARED) -> tuple[Model, ...]:
        """``count`` models with exactly ``share`` of their inputs in common."""
        own = round(len(self.shared) * (1 - share) / share)
        return tuple(self._model(number, own) for number in range(count))

    def _model(self, number: int, own: int) -> Model:
        made = Model(f"{self.table}_{number}", client=f"team_{number % 5}", label=LABEL, table=self.table)
        for name, expression in self.shared.items():
            made.input(name, expression)
        for position in range(own):
            taken = number * own + position
            idea = self.ideas[taken % len(self.ideas)]
            made.input(f"idea_{position}", idea(taken))
        return made


def search_fleet(table: str = "search_log") -> Fleet:
    """Click models over the search-ads log of :mod:`headrace.demo.sample_log`."""
    return Fleet(table, {**_words(), **_word_crosses(), **_id_crosses(), **_ids(), **_numbers()}, _search_ideas())


_query, _title, _category = text("query"), text("ad_title"), text("category")
_q, _t, _c = _query.lower().unigrams(), _title.lower().unigrams(), _category.unigrams()
_user, _advertiser, _position = int64("user_id"), int64("advertiser_id"), int64("position")
_device, _country = text("device"), text("country")
_hour, _weekday = timestamp("time").hour_of_day(), timestamp("time").day_of_week()
_price, _age = float32("price").fill_null(0.0), int64("user_age").fill_null(38)
_price_step = _price.bucketize([5.0, 10.0, 20.0, 50.0, 100.0])
_age_step = _age.bucketize([18, 25, 35, 45, 55, 65])


def _words() -> dict[str, Expr]:
    """Inputs of texts: words, 2-grams, the intersection of query and title."""
    tokens = {
        "query_words": _q,
        "title_words": _t,
        "query_pairs": _q.ngrams(2),
        "title_pairs": _t.ngrams(2),
        "title_triples": _t.ngrams(3),
        "both": _q & _t,
        "either": _q | _t,
        "only_query": _q - _t,
        "only_title": _t - _q,
        "pairs_of_both": _q.ngrams(2) & _t.ngrams(2),
        "overlap": concat(_q & _t, _c),
        "query_and_category": concat(_q, _c),
        "query_letters": _query.lower().char_ngrams(3).unique(),
        "title_letters": _title.lower().char_ngrams(3).unique(),
        "title_start": _t.head(3),
        "query_end": _q.tail(1),
    }
    return {name: value.hash_buckets(50_000 if "letters" in name else 500_000) for name, value in tokens.items()}


def _word_crosses() -> dict[str, Expr]:
    """Crosses of words with place, time, user and advertiser, and of query words with title words."""
    contexts = {
        "device": _device,
        "country": _country,
        "category": _category,
        "advertiser": _advertiser,
        "hour": _hour,
        "position": _position,
        "age": _age_step,
    }
    tokens = {"query_words": _q, "query_pairs": _q.ngrams(2), "title_words": _t, "both": _q & _t}
    built = {
        f"{name}_x_{other}": cross(value, context, buckets=1_000_000)
        for name, value in tokens.items()
        for other, context in contexts.items()
    }
    built["query_x_title"] = cross(_q, _t, buckets=2_000_000)
    built["query_x_title_x_device"] = cross(_q.head(2), _t.head(4), _device, buckets=2_000_000)
    built["pairs_x_title"] = cross(_q.ngrams(2), _t, buckets=2_000_000)
    return built


def _id_crosses() -> dict[str, Expr]:
    pairs = {
        "user_x_category": (_user, _category),
        "user_x_advertiser": (_user, _advertiser),
        "user_x_device": (_user, _device),
        "user_x_hour": (_user, _hour),
        "advertiser_x_category": (_advertiser, _category),
        "advertiser_x_country": (_advertiser, _country),
        "advertiser_x_device": (_advertiser, _device),
        "advertiser_x_position": (_advertiser, _position),
        "advertiser_x_hour": (_advertiser, _hour),
        "category_x_country": (_category, _country),
        "category_x_device": (_category, _device),
        "category_x_age": (_category, _age_step),
        "category_x_price": (_category, _price_step),
        "device_x_hour": (_device, _hour),
        "country_x_hour": (_country, _hour),
        "position_x_device": (_position, _device),
        "weekday_x_hour": (_weekday, _hour),
        "advertiser_x_category_x_device": (_advertiser, _category, _device),
        "user_x_category_x_device": (_user, _category, _device),
        "country_x_device_x_hour": (_country, _device, _hour),
        "query_x_advertiser": (_query, _advertiser),
        "query_x_category": (_query, _category),
    }
    return {name: cross(*parts, buckets=1_000_000) for name, parts in pairs.items()}


def _ids() -> dict[str, Expr]:
    whole = {"user": _user, "advertiser": _advertiser, "category": _category, "device": _device, "country": _country,
             "position": _position, "query": _query.lower(), "title": _title.lower()}  # fmt: skip
    built = {name: value.hash_buckets(200_000) for name, value in whole.items()}
    return {**built, "hour": _hour, "weekday": _weekday, "price_step": _price_step, "age_step": _age_step}


def _numbers() -> dict[str, Expr]:
    return {
        "price": _price.log1p(),
        "price_root": _price.sqrt().scale(0.1, -0.5),
        "price_missing": float32("price").missing_indicator(),
        "age": _age.cast("float32").scale(0.05, -1.9),
        "age_missing": int64("user_age").missing_indicator(),
        "shared_words": (_q & _t).count().cast("float32").log1p(),
        "likeness": _q.jaccard(_t),
        "query_count": _q.count().cast("float32"),
        "title_count": _t.count().cast("float32"),
        "hour_sine": _hour.cast("float32").sin_periodic(24.0),
        "hour_cosine": _hour.cast("float32").cos_periodic(24.0),
        "letters_apart": _query.lower().edit_distance(_title.lower()).cast("float32"),
    }


def _search_ideas() -> list[Callable[[int], Expr]]:
    """A new cross, a shared input with another table size, another choice of words, another scale of a number."""
    return [
        lambda n: cross(_q, _t.head(2 + n % 3), _country, buckets=1_000_000 + n),
        lambda n: (_q & _t).hash_buckets(100_000 + n),
        lambda n: cross(_t.ngrams(2), _age_step, buckets=1_000_000 + n),
        lambda n: _price.scale(0.01 * (n + 1), -0.5),
        lambda n: concat(_q, _t).unique().hash_buckets(300_000 + n),
        lambda n: cross(_user, _price_step, _hour, buckets=1_000_000 + n),
        lambda n: _q.ngrams(3).hash_buckets(400_000 + n),
    ]


def news_fleet(table: str = "globo") -> Fleet:
    """Click models over Globo.com's news log, as ``pipelines.formats`` prepares it."""
    return Fleet(table, {**_news_ids(), **_news_crosses(), **_news_histories(), **_news_numbers()}, _news_ideas())


_reader, _article, _last = int64("user_id"), int64("article_id"), int64("last_article_id")
_history = ragged("history", "int64")
_recent = int64("article_clicks_recent").cast("float32")
_last_hour = int64("article_clicks_last_hour").cast("float32")
_article_age = float32("article_age_hours").fill_null(0.0)
_idle = float32("secs_since_last_click").fill_null(0.0)
_article_step = _article_age.bucketize([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])
_recent_step = _recent.log1p().bucketize([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
_idle_step = _idle.bucketize([10.0, 60.0, 300.0, 1800.0, 86400.0])
_CONTEXTS = {
    name: int64(column)
    for name, column in (
        ("environment", "environment"),
        ("device", "device_group"),
        ("os", "os"),
        ("country", "country"),
        ("region", "region"),
        ("referrer", "referrer_type"),
    )
} | {"hour": _hour, "weekday": _weekday, "article_age": _article_step, "clicks": _recent_step, "idle": _idle_step}


def _news_ids() -> dict[str, Expr]:
    whole = {"reader": _reader, "article": _article, "last_article": _last}
    built = {name: value.hash_buckets(100_000) for name, value in whole.items()}
    return {**built, **{f"{name}_id": value.hash_buckets(100) for name, value in _CONTEXTS.items()}}


def _news_crosses() -> dict[str, Expr]:
    built = {f"article_x_{name}": cross(_article, value, buckets=400_000) for name, value in _CONTEXTS.items()}
    built |= {f"last_x_{name}": cross(_last, value, buckets=400_000) for name, value in _CONTEXTS.items()}
    built |= {f"reader_x_{name}": cross(_reader, value, buckets=400_000) for name, value in _CONTEXTS.items()}
    built["last_x_article"] = cross(_last, _article, buckets=400_000)
    built["last_x_article_x_device"] = cross(_last, _article, _CONTEXTS["device"], buckets=400_000)
    built["region_x_device_x_hour"] = cross(_CONTEXTS["region"], _CONTEXTS["device"], _hour, buckets=100_000)
    return built


def _news_histories() -> dict[str, Expr]:
    """Inputs of the history: items, pairs, crosses with the candidate and with the time."""
    built = {
        "history": _history.hash_buckets(100_000),
        "history_start": _history.head(4).hash_buckets(100_000),
        "history_set": _history.unique().hash_buckets(100_000),
        "history_x_article": cross(_history, _article, buckets=1_000_000),
        "history_x_last": cross(_history, _last, buckets=1_000_000),
        "history_x_article_x_hour": cross(_history.head(4), _article, _hour, buckets=1_000_000),
        "history_x_history": cross(_history.head(5), _history.head(5), buckets=1_000_000),
    }
    return built | {f"history_x_{name}": cross(_history, value, buckets=1_000_000) for name, value in _CONTEXTS.items()}


def _news_numbers() -> dict[str, Expr]:
    return {
        "recent": _recent.log1p().scale(0.2, -1.0),
        "last_hour": _last_hour.log1p().scale(0.25, -0.8),
        "trend": (_last_hour * 24.0 / (_recent + 1.0)).log1p(),
        "age": _article_age.log1p().scale(0.4, -1.0),
        "age_missing": float32("article_age_hours").missing_indicator(),
        "idle": _idle.log1p().scale(0.15, -0.5),
        "session_clicks": int64("session_clicks").cast("float32").log1p(),
        "user_clicks": int64("user_clicks").cast("float32").log1p(),
        "history_count": _history.count().cast("float32"),
        "hour_sine": _hour.cast("float32").sin_periodic(24.0),
        "hour_cosine": _hour.cast("float32").cos_periodic(24.0),
    }


def _news_ideas() -> list[Callable[[int], Expr]]:
    return [
        lambda n: cross(_history.head(2 + n % 5), _article, _CONTEXTS["device"], buckets=1_000_000 + n),
        lambda n: _history.head(3).hash_buckets(50_000 + n),
        lambda n: cross(_article, _hour, _CONTEXTS["region"], buckets=400_000 + n),
        lambda n: _recent.scale(0.01 * (n + 1), -0.5),
        lambda n: cross(_history, _idle_step, _hour, buckets=1_000_000 + n),
    ]
