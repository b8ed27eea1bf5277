"""Three models of two clients on the Open Bandit log: impressions of fashion items with position and propensity."""

import headrace as hr

item, position = hr.int64("item_id"), hr.int64("position")
user_features = [hr.text(f"user_feature_{n}") for n in range(4)]
item_features = [hr.text(f"item_feature_{n}") for n in range(1, 4)]
hour = hr.timestamp("time").hour_of_day()

SHARED = {
    "item": item.hash_buckets(500),
    "position": position.hash_buckets(20),
    "item_x_position": hr.cross(item, position, buckets=2_000),
    **{f"user_{n}": feature.hash_buckets(100) for n, feature in enumerate(user_features)},
    **{f"item_{n + 1}": feature.hash_buckets(100) for n, feature in enumerate(item_features)},
    "user_x_item": hr.cross(user_features[0], user_features[1], item, buckets=20_000),
    "item_number": hr.float32("item_feature_0").fill_null(0.0),
    "affinity": hr.float32("affinity").fill_null(0.0),
    "hour": hour,
}


def fashion_model(name: str, client: str, priority: int) -> hr.Model:
    """A model with every shared input."""
    model = hr.Model(name, client=client, priority=priority, label="clicked")
    for key, expression in SHARED.items():
        model.input(key, expression)
    return model


fashion_ctr = fashion_model("fashion_ctr", "fashion", 10)

fashion_ctr_next = fashion_model("fashion_ctr_next", "fashion", 5)
fashion_ctr_next.input("item_x_hour", hr.cross(item, hour, buckets=5_000))

email_ctr = fashion_model("email_ctr", "email", 8)
email_ctr.input("policy", hr.text("policy").hash_buckets(10))
