"""The reference page of the documents of ``--json``, and their JSON Schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache

from headrace.reference.commands import commands
from headrace.reference.documents import shape_of
from headrace.reference.emitted import screens_of
from headrace.reference.markdown import GENERATED, table
from headrace.reference.shapes import Either, Items, Object, Shape

_HEAD = f"""# JSON documents

This page lists the fields that each command prints with `--json`, by their paths: `models[].name` is the field `name` of each item of the list `models`, and
`*` stands for a name, such as that of a label. {GENERATED}

A field marked *optional* is left out where it does not apply. "any" is a value that depends on the model or on your data.
[json-schemas.json](json-schemas.json) has the same as JSON Schemas (2020-12), by command. A later release may add fields; it does not remove or retype one without a
major version. Errors go to standard error, with `--log-format json` as objects ([errors](errors.md)).
"""


@cache
def documents() -> dict[str, Shape]:
    """The shape of the document of each command that has ``--json``; of a command with several screens, any of them."""
    return {
        words: _any_of([shape_of(kind) for kind in screens_of(command).values()])
        for words, command in commands()
        if any("--json" in getattr(one, "opts", ()) for one in command.params)
    }


def _any_of(shapes: list[Shape]) -> Shape:
    distinct = [one for number, one in enumerate(shapes) if one not in shapes[:number]]
    return distinct[0] if len(distinct) == 1 else Either(tuple(distinct))


def schemas_text() -> str:
    """The JSON Schemas by command, as a JSON document."""
    found = {
        words: {"$schema": "https://json-schema.org/draft/2020-12/schema", **shape.schema()}
        for words, shape in documents().items()
    }
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def json_page() -> str:
    """The page as Markdown: the fields of each command's document."""
    parts = [_HEAD]
    for words, shape in documents().items():
        parts.append(f"## {words} --json\n")
        for number, one in enumerate(shape.of if isinstance(shape, Either) else (shape,)):
            parts += ["or, in another case of this command:\n"] if number else []
            parts.append(table(["field", "value"], _rows(one, "")))
    return "\n".join(parts)


def _rows(shape: Shape, path: str) -> Iterator[tuple[str, str]]:
    """The fields below a shape, with the fields of objects in them."""
    for one in shape.of if isinstance(shape, Either) else (shape,):
        if isinstance(one, Items):
            yield from _rows(one.of, f"{path}[]")
        elif isinstance(one, Object):
            for name, value in one.fields.items():
                yield from _row(value, f"{path}.{name}".lstrip("."), is_optional=name in one.optional)
            if isinstance(one.others, Object | Items | Either):
                yield from _row(one.others, f"{path}.*".lstrip("."), is_optional=True)


def _row(shape: Shape, path: str, *, is_optional: bool) -> Iterator[tuple[str, str]]:
    yield f"`{path}`", f"{shape.text()}{', optional' if is_optional and not path.endswith('*') else ''}"
    yield from _rows(shape, path)
