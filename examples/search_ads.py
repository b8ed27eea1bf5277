"""Three models of two clients on the sample search-ads log. Most inputs are shared, and computed once.

headrace model submit examples/search_ads.py --table search_log
"""

import headrace as hr

query, title, category = hr.text("query"), hr.text("ad_title"), hr.text("category")
query_words, title_words = query.lower().unigrams(), title.lower().unigrams()
device, country = hr.text("device"), hr.text("country")
user, advertiser, position = hr.int64("user_id"), hr.int64("advertiser_id"), hr.int64("position")
hour = hr.timestamp("time").hour_of_day()
price, age = hr.float32("price"), hr.int64("user_age")

shared_words = query_words & title_words
SHARED = {
    "overlap": hr.concat(shared_words, category.unigrams()).hash_buckets(50_000),
    "shared_words": shared_words.count().cast("float32").log1p(),
    "query_words": query_words.hash_buckets(50_000),
    "title_words": title_words.hash_buckets(50_000),
    "user": user.hash_buckets(40_000),
    "user_x_category": hr.cross(user, category, buckets=200_000),
    "advertiser": advertiser.hash_buckets(2_000),
    "category": category.hash_buckets(500),
    "position": position.hash_buckets(50),
    "device_x_hour": hr.cross(device, hour, buckets=1_000),
    "price": price.fill_null(0.0).log1p(),
    "age": age.fill_null(38).cast("float32").scale(0.05, -1.9),
}


def with_shared(model: hr.Model) -> hr.Model:
    """``model`` with every shared input."""
    for name, expression in SHARED.items():
        model.input(name, expression)
    return model


search_ctr = with_shared(hr.Model("search_ctr", client="search", priority=10, label="clicked"))
search_ctr.input("country", country.hash_buckets(100))

# The same model with one more input.
search_ctr_next = with_shared(hr.Model("search_ctr_next", client="search", priority=5, label="clicked"))
search_ctr_next.input("query_pairs", query_words.ngrams(2).hash_buckets(100_000))
search_ctr_next.input("country", country.hash_buckets(100))

shopping_ctr = with_shared(hr.Model("shopping_ctr", client="shopping", priority=8, label="clicked"))
shopping_ctr.input("price_step", price.bucketize([5.0, 10.0, 20.0, 50.0, 100.0]))
shopping_ctr.input("age_step", age.bucketize([18, 25, 35, 45, 55, 65]))
shopping_ctr.input("weekday", hr.timestamp("time").day_of_week())
