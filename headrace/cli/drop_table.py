"""``headrace table drop``: remove a table, and on request the files of an import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options.completions import table_names
from headrace.cli.options.session import AsJson, Home, home_location, open_warehouse
from headrace.terminal.output import emit
from transforms.errors import InputError

if TYPE_CHECKING:
    from headrace.screens.dropped_table import DroppedTableScreen
    from pipelines.ingest.imported_table import ImportedFiles
    from warehouse.changes.drop_table import DroppedTable
    from warehouse.warehouse import Warehouse


def drop(
    name: Annotated[str, typer.Argument(autocompletion=table_names, help="Name of the table.")],
    yes: Annotated[bool, typer.Option("--yes", help="Drop it; without this, only show what would be dropped.")] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Drop it even if live models, running tasks or jobs read it; models are retired."),
    ] = False,
    delete_files: Annotated[
        bool,
        typer.Option(
            "--delete-files",
            help="Delete the files of a table that was imported into the home. Other files are never deleted.",
        ),
    ] = False,
    why: Annotated[str, typer.Option(help="The reason, stored in the table's history.")] = "",
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Drop a table and evict its memos. A dry run without --yes. Its files stay without --delete-files."""
    from warehouse.tables.manifests import find_table
    from warehouse.tables.register import check_table_name

    with open_warehouse(home) as warehouse:
        check_table_name(warehouse, name)
        with warehouse.catalog.read() as connection:
            table = find_table(connection, name)
        local = home_location(home)
        if table is None and delete_files and _remove_rest(local, name, yes=yes, as_json=as_json):
            return
        files = None if table is None or "://" in local else _imported(local, name, table.root)
        if delete_files and table is not None and files is None:
            raise InputError("--delete-files needs a table that was imported into the home", where=f"table {name}",
                             value=table.root, next_step="leave out --delete-files, and delete the files by hand")  # fmt: skip
        done = _drop(warehouse, local, name, yes=yes, force=force, delete_files=delete_files, why=why)
    emit(_screen(done, files, delete_files=delete_files, force=force), as_json=as_json)


def _drop(
    warehouse: Warehouse, home: str, name: str, *, yes: bool, force: bool, delete_files: bool, why: str
) -> DroppedTable:
    from pipelines.ingest.imported_table import refuse_running_import, remove_imported
    from warehouse.changes.drop_table import drop_table, plan_drop

    if not yes:
        return plan_drop(warehouse, name)
    if delete_files:
        refuse_running_import(home, name)
    done = drop_table(warehouse, name, why=why, force=force)
    if delete_files:
        remove_imported(home, name)
    return done


def _imported(home: str, name: str, root: str) -> ImportedFiles | None:
    from pipelines.ingest.imported_table import imported_files

    return imported_files(home, name, root)


def _remove_rest(home: str, name: str, *, yes: bool, as_json: bool) -> bool:
    """Delete what an interrupted drop left of a table's files; False if there is nothing."""
    from headrace.screens.dropped_table import RemovedFilesScreen
    from pipelines.ingest.imported_table import imported_files, refuse_running_import, remove_imported

    found = None if "://" in home else imported_files(home, name, f"{home}/tables/{name}")
    if found is None or not found.folders:
        return False
    if yes:
        refuse_running_import(home, name)
        remove_imported(home, name)
    emit(RemovedFilesScreen(name, found.folders, found.files, found.size_bytes, yes), as_json=as_json)
    return True


def _screen(done: DroppedTable, files: ImportedFiles | None, *, delete_files: bool, force: bool) -> DroppedTableScreen:
    from headrace.screens.dropped_table import DroppedTableScreen

    gone = files if delete_files else None
    return DroppedTableScreen(
        done,
        imported=files is not None,
        deleted_files=0 if gone is None else gone.files,
        deleted_bytes=0 if gone is None else gone.size_bytes,
        refused=done.in_use and not done.done and not force,
    )
