"""Lineage: events of OpenLineage, written with what they report, and kept until they are sent."""
