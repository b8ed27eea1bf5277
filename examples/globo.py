"""Three models of two clients on Globo.com's news clicks, as ``make demo FORMAT=globo`` prepares them.

They predict whether a user clicks an article; the articles that the user read before, crossed with it, matter most.
"""

import headrace as hr

user, article, last_article = hr.int64("user_id"), hr.int64("article_id"), hr.int64("last_article_id")
history = hr.ragged("history", "int64")
environment, device, region = hr.int64("environment"), hr.int64("device_group"), hr.int64("region")
recent = hr.int64("article_clicks_recent").cast("float32")
last_hour = hr.int64("article_clicks_last_hour").cast("float32")
age_hours = hr.float32("article_age_hours")
hour = hr.timestamp("time").hour_of_day()

ARTICLES = 50_000
SHARED = {
    "article": article.hash_buckets(ARTICLES),
    "history": history.hash_buckets(ARTICLES),
    "last_article": last_article.hash_buckets(ARTICLES),
    "last_x_article": hr.cross(last_article, article, buckets=400_000),
    "history_x_article": hr.cross(history.head(4), article, buckets=400_000),
    "user": user.hash_buckets(100_000),
    "article_x_device": hr.cross(article, device, buckets=100_000),
    "article_x_region": hr.cross(article, region, buckets=100_000),
    "environment": environment.hash_buckets(50),
    "referrer": hr.int64("referrer_type").hash_buckets(50),
    "hour": hour,
    "recent": recent.log1p().scale(0.2, -1.0),
    "last_hour": last_hour.log1p().scale(0.25, -0.8),
    "trend": (last_hour * 24.0 / (recent + 1.0)).log1p(),
    "age": age_hours.fill_null(0.0).log1p().scale(0.4, -1.0),
    "session_clicks": hr.int64("session_clicks").cast("float32").log1p(),
    "user_clicks": hr.int64("user_clicks").cast("float32").log1p(),
    "idle": hr.float32("secs_since_last_click").fill_null(0.0).log1p().scale(0.15, -0.5),
}


def news_model(name: str, client: str, priority: int) -> hr.Model:
    """A model with every shared input."""
    model = hr.Model(name, client=client, priority=priority, label="clicked")
    for key, expression in SHARED.items():
        model.input(key, expression)
    return model


news_ctr = news_model("news_ctr", "news", 10)
news_ctr.input("age_step", age_hours.bucketize([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]))

news_ctr_next = news_model("news_ctr_next", "news", 5)
news_ctr_next.input("age_step", age_hours.bucketize([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]))
news_ctr_next.input("article_x_hour", hr.cross(article, hour, buckets=200_000))

promo_ctr = news_model("promo_ctr", "promotions", 8)
promo_ctr.input("os", hr.int64("os").hash_buckets(100))
promo_ctr.input("weekday", hr.timestamp("time").day_of_week())
