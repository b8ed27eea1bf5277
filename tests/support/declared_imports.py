"""Checks that setup.py declares every package that the code imports: ``python -m tests.support.declared_imports``.

A package that is there only because another one needs it disappears with that one. So each module may import the core's packages
and those of the extras in :data:`EXTRAS_BY_MODULE`; a package of another extra is refused too, since an installation without that extra
lacks it.
"""

from __future__ import annotations

import ast
import re
import runpy
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

from tests.conftest import ROOT

PRODUCT = ("transforms", "warehouse", "pipelines", "trainer", "headrace")
CHECKED = (*PRODUCT, "examples", "benchmarks", "tests", "docs")
_PRODUCT_EXTRAS = (
    "azure",
    "beam",
    "dataflow",
    "delta",
    "frames",
    "gcs",
    "iceberg",
    "kafka",
    "metrics",
    "notebook",
    "plan",
    "postgres",
    "s3",
    "tensorflow",
    "tft",
    "train",
    "ui",
)
#: The extras whose packages a module and all modules below it may import, beside the core.
EXTRAS_BY_MODULE: Mapping[str, tuple[str, ...]] = {
    "transforms.functions.library_state": ("frames",),
    "transforms.twins": ("tensorflow", "tft"),
    "warehouse.storage": ("azure", "gcs", "s3"),
    "warehouse.lakes.delta": ("delta",),
    "warehouse.lakes.iceberg": ("iceberg",),
    "warehouse.lakes.iceberg_files": ("iceberg",),
    "pipelines": ("beam",),
    "pipelines.analysis": ("tft",),
    "pipelines.kafka.topic": ("kafka",),
    "pipelines.runners.dataflow": ("dataflow",),
    "pipelines.staging": ("dataflow",),
    "headrace.metrics": ("metrics",),
    "trainer": ("tensorflow", "train"),
    "trainer.planning.towers": ("plan",),
    "trainer.solving": ("plan",),
    "headrace.client.progress": ("notebook",),
    "headrace.data_frames": ("frames",),
    "headrace.web": ("ui",),
    "headrace.loaders.jax": ("jax",),
    "headrace.loaders.torch_dataset": ("torch", "torchrec"),
    "examples": ("tensorflow", "tft"),
    "examples.torch_dlrm": ("torch",),
    "benchmarks": ("bench", *_PRODUCT_EXTRAS),
    "benchmarks.support.dense_steps": ("bench", "jax", "tensorflow", "torch", "train"),
    "docs": ("test",),
    "tests": ("test", *_PRODUCT_EXTRAS),
}
#: Modules that run in environments of their own, and the files that pin the packages there.
ENVIRONMENTS: Mapping[str, tuple[str, ...]] = {
    "trainer.tpu_check.compile": ("trainer/tpu_check/compiling.txt",),
    "trainer.tpu_check.tower_program": ("trainer/tpu_check/compiling.txt",),
    "trainer.tpu_check.sparse_core_count": ("trainer/tpu_check/lowering.txt",),
    "examples.airflow.headrace_daily": ("tests/orchestrators/airflow.txt",),
    "examples.dagster.headrace_daily": ("tests/orchestrators/dagster.txt",),
    "benchmarks.support.sides_of_torch_loader": ("tests/torch/install.py",),
    "tests.torch": ("tests/torch/install.py",),
    "tests.tpu_aot": ("trainer/tpu_check/lowering.txt", "trainer/tpu_check/compiling.txt"),
    "benchmarks.support.dlrm_of_torchrec": ("benchmarks/support/fbgemm_environment.py",),
    "benchmarks.support.side_of_fbgemm": ("benchmarks/support/fbgemm_environment.py",),
    "benchmarks.support.feast_latest": ("benchmarks/support/feast_environment.py",),
    "benchmarks.support.side_of_spark": ("benchmarks/support/spark_environment.py",),
    "benchmarks.support.side_of_tfra": ("benchmarks/support/tfra_environment.py",),
    "benchmarks.support.side_of_torchrec_planner": ("benchmarks/support/fbgemm_environment.py",),
}
#: Packages of these environments whose modules have another name than the package.
_OTHER_NAMES = {"airflow": "apache-airflow", "fbgemm-gpu": "fbgemm-gpu-cpu"}
#: Modules that tests write.
_WRITTEN_BY_TESTS = frozenset({"lazy_package"})
#: Calls that import the module that their first argument names.
_IMPORTING_CALLS = frozenset({"import_module", "importorskip", "__import__"})
_PIN = re.compile(r'(?:^|[\s"])([A-Za-z0-9][\w.-]*)==', re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True, slots=True)
class Import:
    """One import of a module outside the project.

    Attributes:
        importer: the module that imports.
        line: where.
        module: the whole name; of ``from a import b`` it is ``a.b``, where ``b`` may be no module.
    """

    importer: str
    line: int
    module: str


@dataclass(frozen=True, slots=True)
class Declared:
    """The distributions that a module may import from, by canonical names.

    Attributes:
        by_extra: the distributions of each extra; those of the core are under "".
        distributions_of: the installed distributions that a module's name may come from.
        pins_of: the distributions that a file pins.
    """

    by_extra: Mapping[str, frozenset[str]]
    distributions_of: Callable[[str], frozenset[str]]
    pins_of: Callable[[str], frozenset[str]]

    def sources(self, module: str) -> frozenset[str]:
        """The distributions that a module may come from; one that is not installed here has the module's name."""
        return self.distributions_of(module) or frozenset({canonical(module.partition(".")[0])})

    def problem(self, found: Import) -> str:
        """What is wrong with an import; empty if its package is declared where it is imported."""
        extras = _extras_of(found.importer)
        allowed = self.by_extra[""].union(*(self.by_extra[extra] for extra in extras))
        pinned = [
            pins
            for place, files in ENVIRONMENTS.items()
            if _is_in(found.importer, place)
            for pins in map(self.pins_of, files)
        ]
        named = canonical(found.module.partition(".")[0])
        sources = self.sources(found.module)
        if sources & allowed or {*sources, _OTHER_NAMES.get(named, named)} & frozenset().union(*pinned):
            return ""
        elsewhere = sorted(extra for extra, names in self.by_extra.items() if sources & names)
        where = f"the extras {', '.join(elsewhere)} declare it" if elsewhere else "no requirement declares it"
        may = ", ".join(extras) or "(core only)"
        return f"imports {found.module} of {' or '.join(sorted(sources))}; {where}, extras of this module: {may}"


def _is_in(module: str, place: str) -> bool:
    return module == place or module.startswith(f"{place}.")


@cache
def _extras_of(importer: str) -> tuple[str, ...]:
    return tuple(
        sorted({extra for place, names in EXTRAS_BY_MODULE.items() if _is_in(importer, place) for extra in names})
    )


def canonical(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def imports_of(source: str, importer: str) -> Iterator[Import]:
    """The imports of modules outside the project and the standard library, at any depth."""
    own = {*CHECKED, *_WRITTEN_BY_TESTS}
    tree = ast.parse(source)
    nodes = ast.walk(tree) if any(call in source for call in _IMPORTING_CALLS) else _statements(tree)
    for node in nodes:
        for module in _modules(node):
            top = module.partition(".")[0]
            if top not in own and top not in sys.stdlib_module_names:
                yield Import(importer, getattr(node, "lineno", 0), module)


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """All statements of a module: a fifth of its nodes."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for field in ("body", "orelse", "handlers", "finalbody", "cases"):
            inner = getattr(node, field, ())
            waiting += inner if isinstance(inner, list) else ()


def _modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        called = getattr(node.func, "id", getattr(node.func, "attr", ""))
        return [str(node.args[0].value)] if called in _IMPORTING_CALLS else []
    return []


def declared() -> Declared:
    """What setup.py declares and this environment has."""
    build = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")
    groups = {"": build["CORE"], **build["EXTRAS"]}
    return Declared({extra: names_of(texts) for extra, texts in groups.items()}, installed_distributions, _pins)


def names_of(requirements: Iterable[str]) -> frozenset[str]:
    """The canonical names of requirements such as ``apache-beam[gcp]>=2.70``."""
    return frozenset(canonical(match[0]) for text in requirements if (match := _NAME.match(text)))


@cache
def _pins(file: str) -> frozenset[str]:
    return frozenset(map(canonical, _PIN.findall((ROOT / file).read_text(encoding="utf-8"))))


def installed_distributions(module: str) -> frozenset[str]:
    """The distributions with the longest part of a module's name; more than one if they share a package such as ``google``."""
    sharing = frozenset(map(canonical, _distributions().get(module.partition(".")[0], ())))
    if len(sharing) < 2:
        return sharing
    parts = module.split(".")
    for length in range(len(parts), 1, -1):
        place = "/".join(parts[:length])
        if found := frozenset(name for name in sharing if place in _places(name)):
            return found
    return sharing


@cache
def _distributions() -> Mapping[str, list[str]]:
    return packages_distributions()


@cache
def _places(name: str) -> frozenset[str]:
    """The modules of a distribution, and its packages that have a module of their own, as paths without suffix."""
    files = [str(file) for file in distribution(name).files or () if file.suffix in (".py", ".pyi", ".so")]
    return frozenset(file.removesuffix("/__init__.py").partition(".")[0] for file in files)


def imports_below(root: Path, tops: Iterable[str]) -> list[Import]:
    """The imports of all modules under folders of ``root``."""
    found: list[Import] = []
    for file in sorted(file for top in tops for file in (root / top).rglob("*.py")):
        importer = ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        found += imports_of(file.read_text(encoding="utf-8"), importer)
    return found


def unused_rules(imports: Iterable[Import], known: Declared) -> list[str]:
    """The extras of :data:`EXTRAS_BY_MODULE` without an import that needs them: a rule that allows too much."""
    found = [(one.importer, known.sources(one.module)) for one in imports]
    return [
        f"{place}: {extra}"
        for place, extras in EXTRAS_BY_MODULE.items()
        if place.partition(".")[0] in PRODUCT
        for extra in extras
        if not any(_is_in(importer, place) and sources & known.by_extra[extra] for importer, sources in found)
    ]


def main() -> int:
    """Print what is not declared; status 1 if there is any."""
    known, imports = declared(), imports_below(ROOT, CHECKED)
    found = [f"{one.importer}, line {one.line}: {why}" for one in imports if (why := known.problem(one))]
    found += [f"no module needs the rule {rule}" for rule in unused_rules(imports, known)]
    for line in found:
        sys.stderr.write(f"{line}\n")
    if found:
        sys.stderr.write(
            "declare the package in setup.py and docs/dependencies.md, or allow the extra in tests/support/declared_imports.py\n"
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
