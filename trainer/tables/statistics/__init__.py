"""Samples of the ids of features, for plans and hot rows."""
