"""Alembic's entry: runs the steps on the connection that :func:`warehouse.catalog.migrate.migrate` hands over."""

from __future__ import annotations

from alembic import context

from warehouse.catalog.schema import metadata


def run() -> None:
    """Run the steps inside the caller's transaction."""
    connection = context.config.attributes["connection"]
    context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
    context.run_migrations()


run()
