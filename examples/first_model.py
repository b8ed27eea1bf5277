"""A first model: the example of Google's paper, and two more inputs."""

import headrace as hr

query, title, category = hr.text("query"), hr.text("ad_title"), hr.text("category")

model = hr.Model("first_model", client="search", priority=10, label="clicked")
model.input("overlap", hr.concat(query.unigrams() & title.unigrams(), category.unigrams()).hash_buckets(1_000_000))
model.input("query_x_hour", hr.cross(query.lower(), hr.timestamp("time").hour_of_day(), buckets=100_000))
model.input("price", hr.float32("price").fill_null(0).log1p())
