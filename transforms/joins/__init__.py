"""Columns of events that are computed from the histories of other tables, as of each event."""
