"""The README's first example runs, and its install line names extras that exist."""

from __future__ import annotations

import ast
import re
import runpy

from tests.conftest import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_first_example_runs() -> None:
    first = next(iter(re.findall(r"```python\n(.*?)```", README, re.DOTALL)))
    *lines, last = ast.parse(first).body
    assert isinstance(last, ast.Expr)
    names: dict[str, object] = {}
    exec(compile(ast.Module(lines, []), "README.md", "exec"), names)
    table = eval(compile(ast.Expression(last.value), "README.md", "eval"), names)
    assert table.to_pylist() == [{"overlap": ["red", "shoes"]}]


def test_the_extras_of_the_install_line_exist() -> None:
    extras = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")["EXTRAS"]
    for named in re.findall(r"pip install '[\w.]+\[([\w,]+)\]'", README):
        assert set(named.split(",")) <= set(extras)
