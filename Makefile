# `make demo` and `make test` set up their environment. Requirements: git, make, and Python 3.11, 3.12 or 3.13 with venv.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DOCS_READY := .docs/.ready
RELEASE_READY := .release/.ready
CANDIDATES := python3 python3.13 python3.12 python3.11
SUITABLE = import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for p in $(CANDIDATES); do $$p -c '$(SUITABLE)' >/dev/null 2>&1 && { echo $$p; break; }; done)

.PHONY: help reference docs refresh release demo test test-all test-soak flink test-flink spark test-spark kafka test-kafka torch test-torch orchestrators test-orchestrators deployment test-deployment tpu test-tpu-aot test-wheel check mutants bench bench-gate bench-fbgemm bench-feast bench-spark tfra bench-tfra bench-torch clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

$(READY): requirements.txt requirements-no-deps.txt setup.py
	@test -n "$(PYTHON)" || { echo "No Python 3.11, 3.12 or 3.13 with venv was found."; \
	  echo "  next: apt-get install python3 python3-venv, or call make PYTHON=/path/to/python3.12"; exit 2; }
	@echo "Setting up $(VENV) with $(PYTHON) (about two minutes the first time)"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-no-deps.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(READY)

demo: $(READY) ## from raw logs to a trained model; LOGS=path FORMAT=globo|movielens|criteo|obd for real logs
	@$(BIN)/headrace demo $(if $(LOGS),--logs "$(LOGS)") $(if $(FORMAT),--format $(FORMAT)) $(DEMO_OPTIONS)

test: $(READY) ## the fast tests, in minutes
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not medium and not slow and not flink and not spark and not kafka and not torch and not orchestrators and not deployment and not tpu_aot and not wheel" $(TEST_OPTIONS)

test-all: $(READY) ## all tests except those on Flink, Spark and Kafka, for PyTorch, orchestrators, deployment and TPUs, and of the wheel, and the soak tests
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not soak and not flink and not spark and not kafka and not torch and not orchestrators and not deployment and not tpu_aot and not wheel" --hypothesis-profile thorough $(TEST_OPTIONS)

test-soak: $(READY) ## training jobs killed, preempted and held at many more points
	$(BIN)/python -m pytest -n 2 --dist worksteal -m soak $(TEST_OPTIONS)

flink: $(READY) # Flink and Beam's job server in .flink/, pinned by tests/flink/install.py
	@$(BIN)/python -m tests.flink.install

test-flink: flink ## the tests on a real Flink; needs java and mvn
	$(BIN)/python -m pytest -n 0 -m flink tests/flink $(TEST_OPTIONS)

spark: $(READY) # Spark and Beam's job server in .spark/, pinned by tests/spark/install.py
	@$(BIN)/python -m tests.spark.install

test-spark: spark ## the tests on a real Spark; needs java and mvn
	$(BIN)/python -m pytest -n 0 -m spark tests/spark $(TEST_OPTIONS)

kafka: $(READY) # a Kafka broker in .kafka/, pinned by tests/kafka/install.py
	@$(BIN)/python -m tests.kafka.install

test-kafka: kafka ## the tests on a real Kafka broker; needs java and mvn
	$(BIN)/python -m pytest -n 0 -m kafka tests/kafka $(TEST_OPTIONS)

torch: $(READY) # PyTorch, TorchRec and JAX in .torch/, pinned by tests/torch/install.py
	@$(BIN)/python -m tests.torch.install

test-torch: torch ## the loaders for PyTorch and JAX, with real DataLoader workers
	$(BIN)/python -m pytest -n 0 -m torch tests/torch $(TEST_OPTIONS)

orchestrators: $(READY) # Airflow and Dagster in .orchestrators/, pinned by tests/orchestrators/
	@$(BIN)/python -m tests.orchestrators.install

test-orchestrators: orchestrators ## the examples for Airflow and Dagster, under their own executors
	$(BIN)/python -m pytest -n 0 -m orchestrators tests/orchestrators $(TEST_OPTIONS)

deployment: $(READY) # Helm, Prometheus and the parser of compose files in .deployment/, pinned by tests/deployment/install.py; needs go
	@$(BIN)/python -m tests.deployment.install

test-deployment: deployment ## the chart, the compose file and what Prometheus reads, by their own programs
	PATH="$(CURDIR)/.deployment/bin:$$PATH" $(BIN)/python -m pytest -n 0 -m "deployment or medium or slow" tests/deployment tests/headrace/metrics $(TEST_OPTIONS)

tfra: $(READY) # TensorFlow Recommenders Addons in .tfra/, pinned by benchmarks/support/tfra_environment.py
	@$(BIN)/python -m benchmarks.support.tfra_environment

bench-tfra: tfra ## hashed tables beside the dynamic embeddings of TensorFlow Recommenders Addons
	$(BIN)/python -m benchmarks.server_systems

bench-torch: torch ## the loader for PyTorch beside loaders of Parquet
	$(BIN)/python -m benchmarks.torch_loader

tpu: $(READY) ## TensorFlow for TPUs and the TPU compiler in .tpu/, for `headrace tpu check`
	@$(BIN)/python -m trainer.tpu_check.environment .tpu

test-tpu-aot: tpu ## the tests that compile training steps for TPUs; needs no TPU
	$(BIN)/python -m pytest -n 2 --dist loadfile -m tpu_aot tests/tpu_aot $(TEST_OPTIONS)

test-wheel: $(READY) ## the wheel in an empty environment, beside packages of the same names
	$(BIN)/python -m pytest -n 0 -m wheel tests/wheel $(TEST_OPTIONS)

reference: $(READY) ## the generated pages of the manual: commands, options, operators, errors, JSON, Python
	$(BIN)/python -m headrace.reference docs

$(DOCS_READY): docs/requirements.txt $(READY)
	@$(BIN)/python -m venv --clear .docs
	@.docs/bin/python -m pip install --quiet --disable-pip-version-check -r docs/requirements.txt
	@touch $(DOCS_READY)

docs: $(DOCS_READY) ## the manual as a site in .docs/site, without a network once its environment is there
	@NO_MKDOCS_2_WARNING=1 .docs/bin/python -m mkdocs build --quiet --strict
	@echo "The manual is in .docs/site; to read it: $(BIN)/python -m http.server --directory .docs/site"

$(RELEASE_READY): tests/release/requirements.txt $(READY)
	@$(BIN)/python -m venv --clear .release
	@.release/bin/python -m pip install --quiet --disable-pip-version-check -r tests/release/requirements.txt
	@touch $(RELEASE_READY)

refresh: $(RELEASE_READY) ## pins the newest packages that resolve together in requirements.txt
	$(BIN)/python -m tests.release.refresh .release/bin/uv

release: $(RELEASE_READY) ## a rehearsal: artifacts, signed digests, bill of materials, and the tutorial from a local index; publishes nothing
	$(BIN)/python -m tests.release .release dist

check: $(READY) ## format, lint, types, import rules, declared packages, and that each test module can be imported
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m tests.support.declared_imports
	@tests=$$($(BIN)/python -m pytest -p no:cacheprovider --collect-only -q -m "" 2>&1) && tail -n 1 <<<"$$tests" || { echo "$$tests"; exit 1; }

mutants: $(READY) ## 50 mutants in lines changed since SINCE, with SEED, and the tests nearest to them
	$(BIN)/python -m tests.mutants $(if $(SINCE),--since $(SINCE)) $(if $(SEED),--seed $(SEED)) $(MUTANTS_OPTIONS)

bench: $(READY) ## the benchmarks that README and docs quote
	@for script in transform_throughput movielens_throughput kernels_and_reading reading_floor floors shared_components peak_memory text_validity hostile_arrays \
	  cold_start light_commands submit_scale wide_and_many bucket_clients memo_format minimum_cut cost_model late_rows joined_columns late_joined_rows second_model_joins online_states catalog_scale many_models model_churn \
	  raw_bytes_read direct_runner_overhead isolation simulator autoscale chaos analysis default_quality planted_quality model_quality first_model \
	  controller_start tower_simulation pruning_speed reader_speed reader_loss training_job job_overhead host_steps checkpoint_stall dense_step embedding_kernels embedding_corners partitioned_cores wire_compression dense_all_reduce grid_sums rounded_sums update_sharding stale_hosts dlrm_throughput staleness plan_feedback hot_rows_wire preempted_epochs server_notices training_chaos fleet; do echo "== benchmarks.$$script"; \
	  $(BIN)/python -m benchmarks.$$script || exit 1; done

bench-gate: $(READY) ## ten core figures beside the last release's on this kind of machine; WRITE=1 records them
	$(BIN)/python -m benchmarks.gate $(if $(WRITE),--write) $(GATE_OPTIONS)

bench-fbgemm: $(READY) ## FBGEMM and TorchRec in .fbgemm/, and the benchmarks against them; TABLES="file.json …" for that of planners
	@$(BIN)/python -m benchmarks.support.fbgemm_environment .fbgemm
	$(BIN)/python -m benchmarks.embedding_kernels
	$(if $(TABLES),$(BIN)/python -m benchmarks.planners $(TABLES))

bench-feast: $(READY) ## Feast in .feast/, and joined columns against its file store
	@$(BIN)/python -m benchmarks.support.feast_environment .feast
	$(BIN)/python -m benchmarks.feast_joins

bench-spark: $(READY) ## Spark's Python package in .pyspark/, and joined columns against plain Spark SQL; needs java
	@$(BIN)/python -m benchmarks.support.spark_environment .pyspark
	$(BIN)/python -m benchmarks.spark_joins

clean: ## remove the environment and the demo's files
	rm -rf $(VENV) .docs .release dist .headrace .fbgemm .deployment .feast .flink .kafka .orchestrators .pyspark .spark .tfra .torch .tpu
