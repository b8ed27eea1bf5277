"""The latest value of each event by Feast's file store, run by Feast's own environment: ``python feast_latest.py FOLDER ROUNDS``.

The folder has ``events.parquet`` (key, event_timestamp, event) and ``rows.parquet`` (key, time, value). Prints the seconds of each round as JSON, and writes
``feast.parquet`` (event, value).
"""

import json
import sys
import time
from datetime import timedelta
from pathlib import Path

import pandas as pd
from feast import Entity, FeatureStore, FeatureView, Field, FileSource, RepoConfig, ValueType
from feast.types import Int64

folder, rounds = Path(sys.argv[1]).absolute(), int(sys.argv[2])
key = Entity(name="key", join_keys=["key"], value_type=ValueType.INT64)
source = FileSource(path=str(folder / "rows.parquet"), timestamp_field="time")
view = FeatureView(
    name="rows", entities=[key], ttl=timedelta(days=3650), schema=[Field(name="value", dtype=Int64)], source=source
)
config = RepoConfig(project="joins", provider="local", registry=str(folder / "registry.db"), entity_key_serialization_version=3,
                    offline_store={"type": "dask"}, online_store={"type": "sqlite", "path": str(folder / "online.db")})  # fmt: skip
store = FeatureStore(config=config)
store.apply([key, view])
secs = []
for _ in range(rounds):
    begun = time.perf_counter()
    events = pd.read_parquet(folder / "events.parquet")
    found = store.get_historical_features(entity_df=events, features=["rows:value"]).to_df()
    secs.append(time.perf_counter() - begun)
found[["event", "value"]].to_parquet(folder / "feast.parquet")
print(json.dumps(secs))
