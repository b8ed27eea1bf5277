"""The colours of a drawing on dark ground: attributes of its parts are those of light ground, a style sheet in it replaces them."""

from __future__ import annotations

from collections.abc import Mapping

#: The parts that all drawings have: the ground, its texts, the quieter ones, and lines behind what is drawn.
_COMMON: Mapping[str, str] = {
    ".ground": "fill: #14181f",
    "text": "fill: #e6eaf1",
    "text.quiet": "fill: #a3aec0",
    ".grid": "stroke: #2b3340",
    ".axis": "stroke: #8493ab",
}


def dark_style(drawing: str, rules: Mapping[str, str] | None = None) -> str:
    """The style sheet of a drawing with this class; ``rules``: further ones, by selector."""
    found = [f"  .{drawing} {selector} {{ {body}; }}" for selector, body in {**_COMMON, **(rules or {})}.items()]
    return "\n".join(["<style>@media (prefers-color-scheme: dark) {", *found, "}</style>"])
