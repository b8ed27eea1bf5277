"""Expressions as text and drawings: one line, a tree, or SVG."""

from transforms.render.svg import graph_svg, model_svg
from transforms.render.text import expression_text, tree_text

__all__ = ["expression_text", "graph_svg", "model_svg", "tree_text"]
