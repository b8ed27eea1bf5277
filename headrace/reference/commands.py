"""The reference page of the commands, from their declarations: each command with its arguments, options and defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from headrace.cli.lazy_group import group_of
from headrace.cli.main import COMMANDS, app
from headrace.reference.markdown import GENERATED, table, with_links

if TYPE_CHECKING:
    from typer._click import Command

_HEAD = f"""# Commands

This page lists every command with its arguments and options, as `--help` does. {GENERATED}

Each command that answers with data takes `--json` ([documents](json.md)); some print CSV or show their screen again every few seconds, and a shell
completes all of them ([output](output.md)). Errors and exit statuses are in [errors](errors.md).
Options before the command, such as `headrace --quiet status`, hold for all commands.
"""
_ROOT = "headrace"


def commands() -> Iterator[tuple[str, Command]]:
    """Every command by the words that call it, in the order of ``--help``."""
    for name, command in _children(group_of(app, COMMANDS)).items():
        yield from _below(f"{_ROOT} {name}", command)


def _children(group: object) -> Mapping[str, Command]:
    return cast("Mapping[str, Command]", getattr(group, "commands", {}))


def _below(words: str, command: Command) -> Iterator[tuple[str, Command]]:
    children = _children(command)
    if not children:
        yield words, command
    for name, child in children.items():
        yield from _below(f"{words} {name}", child)


def commands_page() -> str:
    """The page as Markdown: a table of contents, the options of all commands, then each command."""
    found = list(commands())
    contents = table(
        ["command", "what it does"],
        ((f"[{words}](#{_anchor(words)})", with_links(_first_sentence(one))) for words, one in found),
    )
    root = cast("Command", group_of(app, COMMANDS))
    parts = [_HEAD, contents, "## Options of all commands\n", _options(root, _ROOT)]
    parts += [_entry(words, command) for words, command in found]
    return "\n".join(parts)


def _anchor(words: str) -> str:
    return words.replace(" ", "-")


def _first_sentence(command: Command) -> str:
    return (command.help or "").split("\n\n")[0].split(". ")[0].rstrip(".").replace("\n", " ")


def _entry(words: str, command: Command) -> str:
    paragraphs = [" ".join(one.split()) for one in (command.help or "").split("\n\n")]
    arguments = [one for one in command.params if one.param_type_name == "argument" and not _field(one, "hidden")]
    usage = " ".join([words, *(_argument_text(one) for one in arguments), "[OPTIONS]"])
    parts = [f"## {words}\n", *(f"{with_links(one)}\n" for one in paragraphs if one), f"```\n{usage}\n```\n"]
    return "\n".join([*parts, _options(command, words)])


def _argument_text(argument: object) -> str:
    name = str(_field(argument, "metavar") or _field(argument, "name")).strip("[]").upper()
    text = f"{name} …" if _field(argument, "nargs") == -1 else name
    return text if _field(argument, "required") else f"[{text}]"


def _options(command: Command, words: str) -> str:
    """Its arguments and options in tables, one for each panel of ``--help``."""
    panels: dict[str, list[tuple[str, str, str]]] = {}
    for one in command.params:
        if _field(one, "hidden") or "--help" in one.opts:
            continue
        if one.param_type_name == "argument":
            panel, written = "Arguments", f"`{_argument_text(one)}`"
        else:
            panel, written = str(_field(one, "rich_help_panel") or "Options"), _flag_text(one)
        panels.setdefault(panel, []).append((written, with_links(str(_field(one, "help") or "")), _default_text(one)))
    parts = []
    for panel, rows in panels.items():
        heading = [f"*{panel}*\n"] if panel not in ("Arguments", "Options") or len(panels) > 2 else []
        parts += [*heading, table([_kind(panel), "what it sets", "default"], rows)]
    return "\n".join(parts) or f"`{words}` has no options.\n"


def _kind(panel: str) -> str:
    return "argument" if panel == "Arguments" else "option"


def _flag_text(option: object) -> str:
    names = ", ".join(f"`{name}`" for name in (*_field(option, "opts"), *_field(option, "secondary_opts")))
    if _field(option, "is_flag") or _field(option, "count"):
        return names
    kind = _field(option, "type_descriptor").annotation
    value = _field(option, "metavar") or _plain_name(kind)
    return f"{names} `{value}`"


def _plain_name(kind: object) -> str:
    """The name of an option's type, of the items of a list."""
    items = getattr(kind, "__args__", None)
    one = items[0] if items else kind
    return {"str": "TEXT", "int": "NUMBER", "float": "NUMBER", "bool": "true|false"}.get(
        getattr(one, "__name__", ""), "VALUE"
    )


def _default_text(option: object) -> str:
    default = _field(option, "default")
    if _field(option, "required"):
        return "required"
    if not _field(option, "show_default") or default in (None, "", False, [], ()) or callable(default):
        return ""
    return f"`{getattr(default, 'value', default)}`"


def _field(option: object, name: str) -> Any:
    return getattr(option, name, None)
