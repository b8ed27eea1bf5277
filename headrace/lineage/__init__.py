"""Sends events of lineage to a receiver of OpenLineage, or to a file."""
