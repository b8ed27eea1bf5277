"""What a model needs, compared with what the catalog has: matched, queued, planned and explained."""
