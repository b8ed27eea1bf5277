"""TensorFlow Recommenders Addons as a side of ``benchmarks.server_systems``: its dynamic embeddings in CPU memory.

    python -m benchmarks.support.side_of_tfra FILE THREADS|server

Runs in ``.tfra/``. Lookups are ``embedding_lookup_unique``, updates those of ``DynamicEmbeddingOptimizer`` over Adagrad; one call of a session makes the step. With
``server`` the tables are on a TensorFlow parameter server, a process of its own, as TFRA's examples have them.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import ExitStack
from typing import Any

import tensorflow as tf
from tensorflow_recommenders_addons import dynamic_embedding as de

from benchmarks.support.system_case import GivenCase, MakeStep, answer_lines

_V1 = tf.compat.v1
_JOBS = ("ps", "worker")


def _config(threads: int) -> Any:
    return _V1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=threads)


def _server(ports: list[int], job: str) -> Any:
    cluster = tf.train.ClusterSpec({name: [f"127.0.0.1:{port}"] for name, port in zip(_JOBS, ports)})  # noqa: B905
    return tf.distribute.Server(cluster, job_name=job, task_index=0, config=_config(1), protocol="grpc")


def _free_ports() -> list[int]:
    with ExitStack() as stack:
        return [stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in _JOBS]


def build(given: GivenCase, device: str, target: str, threads: int) -> MakeStep:
    """The step of a session at ``target`` with tables on ``device``."""
    case = given.case
    ids = _V1.placeholder(tf.int64, [case.tables, case.events])
    gradients = _V1.placeholder(tf.float32, [case.events, case.tables * case.dim])
    found, trained = [], []
    for t in range(case.tables):
        table = de.get_variable(f"t{t}", dim=case.dim, initializer=0.0, devices=[device], init_size=case.rows)
        rows, wrapper = de.embedding_lookup_unique(table, ids[t], return_trainable=True, name=f"lookup{t}")
        found.append(rows)
        trained.append(wrapper)
    activations = tf.concat(found, 1)
    adagrad = _V1.train.AdagradOptimizer(case.rate, initial_accumulator_value=case.accumulator)
    update = de.DynamicEmbeddingOptimizer(adagrad).minimize(tf.reduce_sum(activations * gradients), var_list=trained)
    session = _V1.Session(target, config=_config(threads))
    session.run(_V1.global_variables_initializer())
    call = session.make_callable([activations, update], [ids, gradients])
    return lambda number: call(given.ids[number], given.gradients)[0]  # type: ignore[no-any-return]


def main(file: str, where: str) -> None:
    """Answer lines; ``where``: the tables are, or how many threads they have in this process."""
    given = GivenCase.read(file)
    _V1.disable_eager_execution()
    if where != "server":
        return answer_lines(build(given, "/CPU:0", "", int(where)), given.case.batches)
    ports = _free_ports()
    command = [sys.executable, "-m", "benchmarks.support.side_of_tfra", "serve", *map(str, ports)]
    server = subprocess.Popen(command)
    try:
        worker = _server(ports, "worker")
        with tf.device("/job:worker/task:0"):
            step = build(given, "/job:ps/task:0/CPU:0", worker.target, 1)
        answer_lines(step, given.case.batches)
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        _server([int(port) for port in sys.argv[2:]], "ps").join()
    else:
        main(*sys.argv[1:])
