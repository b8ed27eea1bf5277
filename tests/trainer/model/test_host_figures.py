"""The figures of hosts are those of one process, bit for bit, however the events are divided among them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.thread_channels import on_channels
from trainer.model.heads import Head
from trainer.model.task_heads import TaskHeads

BINARY, CLASSES, NUMBER = Head(), Head("multiclass", 3), Head("regression", center=1.5, scale=3.0)
HEADS = {
    "binary": BINARY,
    "classes": CLASSES,
    "number": NUMBER,
    "several": TaskHeads((("click", BINARY), ("kind", CLASSES), ("time", NUMBER))),
}


def drawn_labels(head, rows, source):
    kinds = {"binary": lambda: source.integers(0, 2, rows), "multiclass": lambda: source.integers(0, 3, rows), "regression": lambda: source.normal(size=rows)}  # fmt: skip
    columns = [kinds[one.task]().astype(np.float32) for _, one in head.each]
    if len(columns) == 1:
        return columns[0]
    labels = np.stack(columns, axis=1)
    labels[source.random(labels.shape) < 0.2] = np.nan
    return labels


def scored(head, labels, logits, of_host, hosts):
    def work(channels):
        collector, own = head.collector(), of_host == channels.steps.rank
        collector.add(labels[own], logits[own])
        return collector.scores(channels.steps)

    return on_channels(hosts, work)


@settings(max_examples=scaled(60))
@given(st.sampled_from(sorted(HEADS)), st.integers(0, 200), st.sampled_from([1, 2, 3, 5]), st.integers(0, 2**32 - 1))
def test_figures_of_hosts_are_those_of_one_process(kind, rows, hosts, seed):
    source, head = np.random.default_rng(seed), HEADS[kind]
    labels = drawn_labels(head, rows, source)
    logits = source.normal(0, 3, (rows, head.width) if head.width > 1 else rows).astype(np.float32)
    collector = head.collector()
    collector.add(labels, logits)
    alone = collector.scores()
    of_host = source.choice(source.integers(0, hosts, 2), rows)  # often some hosts have no event
    assert scored(head, labels, logits, of_host, hosts) == [alone] * hosts
    order = source.permutation(rows)
    assert scored(head, labels[order], logits[order], of_host, hosts) == [alone] * hosts


@pytest.mark.parametrize("hosts", [1, 3])
def test_hosts_without_events_have_no_figures(hosts):
    (first, *_) = scored(BINARY, np.zeros(0), np.zeros(0), np.zeros(0, int), hosts)
    assert (first.events, first.auc, first.log_loss, first.normalized_entropy_error) == (0, None, None, None)


def test_the_figures_are_those_of_their_definitions():
    source = np.random.default_rng(3)
    labels, logits = source.integers(0, 2, 5000), source.normal(size=5000)
    collector = BINARY.collector()
    collector.add(labels, logits)
    found = collector.scores()
    p, rate = 1 / (1 + np.exp(-logits)), labels.mean()
    losses = -np.where(labels == 1, np.log(p), np.log(1 - p))
    base = -np.where(labels == 1, np.log(rate), np.log(1 - rate))
    assert found.log_loss == pytest.approx(losses.mean(), rel=1e-12)
    assert found.calibration == pytest.approx(p.sum() / labels.sum(), rel=1e-12)
    assert found.normalized_entropy == pytest.approx(losses.mean() / base.mean(), rel=1e-12)
    error = (losses - base).std(ddof=1) / np.sqrt(5000) / base.mean()
    assert found.normalized_entropy_error == pytest.approx(error, rel=1e-9)
    numbers = NUMBER.collector()
    numbers.add(labels * 2.5, logits)
    of_numbers = numbers.scores()
    errors = logits * 3.0 + 1.5 - labels * 2.5
    assert of_numbers.mean_absolute_error == pytest.approx(np.abs(errors).mean(), rel=1e-12)
    assert of_numbers.normalized_error == pytest.approx((errors**2).mean() / (labels * 2.5).var(), rel=1e-12)
