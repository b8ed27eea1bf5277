"""Documents are written byte for byte as before they were derived from annotations; ``goldens/documents.json`` was written then.

``HEADRACE_WRITE_GOLDENS=1`` writes the file again, which only a new format may need.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import transforms.expressions.expression as hr
from pipelines.fragments.work import ComponentOutcome, FragmentResult, PhaseSecs
from trainer.checkpoints.commit_manifest import CarriedPlaces, CommitFacts, CommitManifest, JobPosition
from trainer.checkpoints.host_part import HostPart, Moment, PartName
from trainer.checkpoints.host_steps import HostSteps
from trainer.checkpoints.manifest import CheckpointFile, Manifest, canonical_json
from trainer.checkpoints.part_manifest import PartArray, PartManifest
from trainer.checkpoints.saved_counts import SavedCounts
from trainer.model.calibration import Calibration
from trainer.model.heads import Head
from trainer.model.scores import RegressionScores, Scores, TasksScores, read_scores
from trainer.model.task_heads import TaskHeads, read_head
from trainer.options.document_field import OPEN, DocumentField
from trainer.planning.feature_statistics import RESIDUES, FeatureStatistics
from trainer.planning.plan import PartitionPlan, Slice, TablePlan
from trainer.planning.plan_document import plan_bytes, read_plan
from trainer.planning.plan_report import CoreLoad, PlanReport, StackLimits, TableReport, WayReport
from trainer.planning.row_frequencies import RowFrequencies
from trainer.planning.row_sample import RowSample
from trainer.planning.towers.interactions import Interactions
from trainer.planning.towers.tower_document import read_towers, towers_bytes
from trainer.planning.towers.tower_plan import TowerFeature, TowerPlan
from trainer.planning.valencies import VALENCY_BOUNDS
from trainer.run.progress.held_out import HeldOut, ScoredPass
from trainer.run.progress.identity import FragmentIdentity, RunIdentity
from trainer.run.progress.run_statistics import NamedStatistics, RunStatistics
from trainer.servers.client_updates import Greeting, Mode
from trainer.servers.drain import DrainState
from trainer.servers.moves.engine_move import MoveFigures, MoveStage
from trainer.servers.moves.move_documents import MoveReport, MoveRequest, TrainingServers
from trainer.serving.deltas.chain import Position
from trainer.serving.deltas.link_manifest import DELTA, FULL, DenseArray, LinkManifest, LinkTable, ServedCommit
from trainer.serving.deltas.row_state import RowsOfTable, RowState
from trainer.serving.deltas.row_values import EXACT
from trainer.serving.deltas.served_rows import ServedRows, ServedTable
from trainer.wire.flight.addresses import Address
from transforms.derived_documents import document_of
from transforms.execution.operator_costs import OperatorWork
from transforms.graphs.graph import component_document
from warehouse.files.column_files import MemoRef, NewFile
from warehouse.queue.failures import Failure
from warehouse.solution.parts import MemoWindow, ReadPlan, SolutionFragment, SolutionInput, SolutionPartition
from warehouse.solution.solution import ReadSolution
from warehouse.tables.table import Fragment, Overlay

GOLDEN = Path(__file__).parent / "goldens" / "documents.json"
SHA, ID, CLASSES = "ab" * 32, "0123456789abcdef", len(VALENCY_BOUNDS)
Read = Callable[[Any], object]


def of(kind: type[Any]) -> Read:
    return lambda document: OPEN.read(kind, DocumentField(document, "document"))


def by(read: Callable[[DocumentField], object]) -> Read:
    return lambda document: read(DocumentField(document, "document"))


def whole(read: Callable[[bytes, str], object], indent: int | None = 1) -> Read:
    """The reader of a document that covers its own bytes."""
    end = "\n" if read in (read_plan, read_towers) else ""
    return lambda document: read((json.dumps(document, indent=indent, sort_keys=True) + end).encode(), "document")


def planning() -> dict[str, tuple[Any, Any, Read]]:
    spread = TablePlan("a", 10, 4, (Slice(0, 4, (0, 1, 3)),))
    sliced = TablePlan("b", 10, 4, (Slice(0, 2, (2,)), Slice(2, 2, (4, 3), (5, 10))))
    copied = TablePlan("r", 3, 4, (Slice(0, 4, (0, 1, 2, 3, 4)),), True)
    plan = PartitionPlan(5, (spread, sliced, copied), (("a", "b"), ("r",)))
    features = TowerFeature("x", "tx", 10, 1.5), TowerFeature("y", "ty", 20, 2.0)
    pair = Interactions(("x", "y"), ((1.0, 0.25), (0.25, 1.0)), 9)
    near = TowerPlan(features, (("x",), ("y",)), "coherent", "bytes", 3, "run", pair, ((0.0, 1.0), (2.0, 0.5)), 0.125)
    sample = RowSample.of_counts(0, 20.0, {5: (2.0, 1.0), 7: (3.0, 2.0)})
    statistics = FeatureStatistics(10.0, 2.0, 20.0, 3, (1.0,) * CLASSES, (0.5,) * CLASSES, 9.0, 5, (1.0,) * RESIDUES,
                                   RowFrequencies.power_law(40, 1.1), sample, 4)  # fmt: skip
    table = TableReport("a", 1.0, 2.0, 3, "s", (WayReport("row", 1, 2, 0.1, 0.2, 3, True),))
    report = PlanReport("t", 1, 2, 0.5, 0.25, 0.1, 1.0, "m", (CoreLoad(1, 0.1, 0.2, 0.3),), (table,))
    limited = replace(report, limits=(StackLimits(("a",), 1, 2),))
    return {
        "plan": (plan, plan_bytes(plan), whole(read_plan)),
        "towers": (near, towers_bytes(near), whole(read_towers)),
        "run statistics": (found := RunStatistics("r", 0, 1, {"k": NamedStatistics("n", statistics)}), found.to_document(), of(RunStatistics)),
        "report": (report, document_of(report), of(PlanReport)),
        "report with limits": (limited, document_of(limited), of(PlanReport)),
    }  # fmt: skip


def checkpoints() -> dict[str, tuple[Any, Any, Read]]:
    steps = {"h1": HostSteps(1, 2), "h0": HostSteps(0, 3)}
    part = HostPart(1, 2, 0, 2, 3, 4, ((1, 2),), {"fragments": []}, None, 1, ({"epoch": 0},), "p", 5)
    full = replace(part, labels={"a": 1}, partition="q", host_steps=steps, ledger=None)
    manifests = [PartManifest(one, (PartArray("w", CheckpointFile(3, SHA), Moment(1, 4)),)) for one in (part, full)]
    files = Manifest(1, CheckpointFile(3, SHA), (("a", CheckpointFile(1, SHA)),))
    job = JobPosition(1, 2, "p", ("h0", "h1"), (CarriedPlaces(0, 1, 2),), "0.1", 3, host_steps=steps)
    earlier = JobPosition(1, 2, "p", ("h0", "h1"), (), "0.1", 3, carried_units=((1, 5),))
    facts = CommitFacts({"a": 1}, SHA, {"task": "binary"}, (("k",),), {"k": 3}, {"scored": [], "stopped": 0})
    commit = CommitManifest(1, {"x": 1}, (PartName(1, 0, SHA),), None)
    counts = SavedCounts.of([("a", np.array([1, 1], np.uint8), 5), ("b", np.array([1, 2], np.uint8), None)])
    identity = RunIdentity({"b": 1, "a": 2}, "t", "l", ({"name": "n", "fingerprint": "f", "type": {"kind": "dense", "dtype": "int64"}},),
                           {"k2": "d", "k1": "e"}, {"k2": (FragmentIdentity(1, "a", "b", "c"),), "k1": ()}, "tt")  # fmt: skip
    scores = Scores(3, 1, 0.5, 0.25, None)
    tasks = TasksScores(3, {"a": scores, "b": RegressionScores(1, 0.1, 0.2, 0.3)})
    heads = TaskHeads((("a", Head()), ("b", Head("regression", 2, 1.0, 2.0))))
    scored = ScoredPass(1, 2, tasks, 0.5, (0.1, 0.2), {"a": Calibration("platt", 5, 2, ((0.0, 1.0),), 1.5, 1.5)})
    held_out = HeldOut((scored,), 1)
    return {
        "part": (manifests[0], manifests[0].to_bytes(), whole(PartManifest.from_bytes)),
        "full part": (manifests[1], manifests[1].to_bytes(), whole(PartManifest.from_bytes)),
        "manifest": (files, files.to_bytes(), whole(Manifest.from_bytes)),
        "job": (job, canonical_json(job.to_document()), lambda document: JobPosition.read(DocumentField({"job": document}, "document"))),
        "earlier job": (earlier, canonical_json(earlier.to_document()), lambda document: JobPosition.read(DocumentField({"job": document}, "document"))),
        "facts": (facts, document_of(facts), of(CommitFacts)),
        "commit": (commit, commit.to_bytes(), whole(CommitManifest.from_bytes)),
        "counts": (counts.fragments, counts.to_document(), by(lambda field: SavedCounts.read(field, counts.uneven).fragments)),
        "identity": (identity, canonical_json(identity.to_document()), by(RunIdentity.read)),
        "scores": (tasks, document_of(tasks), by(read_scores)),
        "head": (Head(), Head().to_document(), by(read_head)),
        "heads": (heads, heads.to_document(), by(read_head)),
        "held out": (held_out, held_out.to_document(), by(lambda field: HeldOut.read(field, (("a",), ("b",))))),
    }  # fmt: skip


def serving() -> dict[str, tuple[Any, Any, Read]]:
    table = LinkTable("embedding", "t", 4, EXACT, 3, 0, 3, 0.0, {})
    table = replace(table, files=dict.fromkeys(table.arrays(), SHA))
    dense, commits = DenseArray("d", "<f4", (2, 3), SHA), (ServedCommit(1, 2, SHA), ServedCommit(0, 1, SHA))
    full = LinkManifest(0, FULL, "", SHA, commits[0], None, (table,), (dense,))
    delta = LinkManifest(1, DELTA, SHA, SHA, commits[0], commits[1], (table,), ())
    rows = RowState(SHA, (RowsOfTable("linear", "t", 3, SHA, SHA),))
    served = ServedRows(Path(f"/x/rows-000001-{SHA[:16]}"), Position(SHA, 1, SHA, 1, SHA), (ServedTable("embedding", "t", 4, 3, SHA, SHA),), (dense,))  # fmt: skip
    request = MoveRequest(ID, ID, (Address("a", 1), Address("::1", 2)))
    wanted = MoveRequest(ID, ID, 3, PartitionPlan(3, ()))
    report = MoveReport(ID, MoveFigures(MoveStage.COPYING, 1, 2, 3, 0.5, 0.6), {"what": "w"})
    state = TrainingServers(ID, (Address("a", 1),), True, None, report, 7)
    greeting, drain = Greeting("t", 0, 2, 3, Mode.SUMMED), DrainState(3, True, 1.5, "r")
    return {
        "link": (full, full.to_bytes(), whole(LinkManifest.from_bytes)),
        "delta": (delta, delta.to_bytes(), whole(LinkManifest.from_bytes)),
        "rows": (rows, rows.to_bytes(), whole(RowState.from_bytes)),
        "served rows": (served, served.to_bytes(), whole(lambda data, _: ServedRows.from_bytes(data, Path("/x")))),
        "move": (request, request.to_document(), by(MoveRequest.read)),
        "wanted move": (wanted, wanted.to_document(), by(MoveRequest.read)),
        "servers": (state, state.to_document(), by(TrainingServers.read)),
        "greeting": (greeting, greeting.to_document(), Greeting.read),
        "drain": (drain, drain.to_document(), lambda document: DrainState.read(json.dumps(document).encode())),
    }


def stored() -> dict[str, tuple[Any, Any, Read]]:
    overlays = (Overlay("q", "", "3" * 64, "int64"),)
    fragment = Fragment("0" * 64, "/a/b", (0, 2), 5, 10, {"a": "1" * 64}, deletions=Overlay("deleted", "x/y", "2" * 64), deleted_rows=2,
                        overlays=overlays, types={"a": "int64"}, levels={"c": "DE"}, digest_types={"a": "int32"})  # fmt: skip
    plain = Fragment("0" * 64, "/a/b", (0, 2), 5, 10, {})
    merged = replace(plain, rows=10, members=(fragment, fragment))
    failure = Failure("raised", "e", "o", "x", (1,), "s")
    outcomes = ComponentOutcome("m", "c", None, SHA, 1, 2, 0.5, "p"), ComponentOutcome("m", "c", Failure("lost", "e"))
    result = FragmentResult("f", "o", (NewFile("p", SHA, 1, 2),), 1, 2, outcomes, (OperatorWork("o", 1, 2, 0.5),), PhaseSecs(0.1, 0.2, 0.3))  # fmt: skip
    node = hr.text("query").unigrams().hash_buckets(10).node
    one = SolutionInput.of("q", node, component_document(node))
    values = {each.name: getattr(fragment, each.name) for each in fields(fragment)}
    placed = SolutionFragment(**values, plan=0, files=(MemoRef("a/b", SHA),), window=MemoWindow(1, 9))
    assert SolutionFragment.of(fragment, 0, placed.files, placed.window) == placed
    moments = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    partition = SolutionPartition("k", *moments, 3, (placed, replace(placed, window=None)))
    solution = ReadSolution("m", 1, "t", 2, "clicked", (one,), (ReadPlan(("load",), {one.fingerprint: 0}, 0.5),), (partition,))  # fmt: skip
    return {
        "fragment": (fragment, fragment.to_document(), Fragment.from_document),
        "plain fragment": (plain, plain.to_document(), Fragment.from_document),
        "merged fragment": (merged, merged.to_document(), Fragment.from_document),
        "failure": (failure, failure.to_document(), Failure.from_document),
        "result": (result, json.dumps(result.to_document(), sort_keys=True).encode(), FragmentResult.from_document),
        "solution": (solution, solution.to_document(), ReadSolution.from_document),
    }


DOCUMENTS = {**planning(), **checkpoints(), **serving(), **stored()}


def text_of(written: Any) -> str:
    return written.decode() if isinstance(written, bytes) else json.dumps(written)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_has_the_bytes_that_it_had_and_is_read_as_its_value(name: str) -> None:
    value, written, read = DOCUMENTS[name]
    golden = json.loads(GOLDEN.read_text())
    if os.environ.get("HEADRACE_WRITE_GOLDENS"):
        GOLDEN.write_text(json.dumps({**golden, name: text_of(written)}, indent=1, sort_keys=True) + "\n")
        return
    assert text_of(written) == golden[name]
    assert read(json.loads(golden[name])) == value
