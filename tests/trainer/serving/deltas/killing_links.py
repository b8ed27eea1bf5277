"""A program that kills itself at every line of writing and applying links, and looks at what is left.

``python -m tests.trainer.serving.deltas.killing_links full|delta|rows|saved FOLDER STEP``: see :mod:`tests.trainer.checkpoints.killing`.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from tests.trainer.checkpoints.killing import survive
from tests.trainer.serving.deltas.histories import content, history, run_files
from trainer.serving.apply_chain import apply_chain
from trainer.serving.deltas.export_links import export_delta, export_full
from trainer.serving.deltas.verify_chain import verify_chain

#: The modules whose lines can leave files in another state.
_TRACED = (
    "deltas/export_links.py",
    "deltas/local_chain.py",
    "deltas/served_rows.py",
    "deltas/row_state.py",
    "deltas/raw_files.py",
    "serving/apply_chain.py",
    "serving/exchange.py",
    "serving/saved_model_weights.py",
    "checkpoints/local_run.py",
    "storage/durable_files.py",
    "/shutil.py",
)
_ROWS = 120
COMMITS = history(50, 2, rows=20, most_id=_ROWS)


def make_run(folder: Path) -> Path:
    """A run with two commits."""
    for epochs in (1, 2):
        COMMITS.commit(folder / "run", epochs)
    return folder / "run"


def files_of(folder: Path) -> dict[str, bytes]:
    """All files but the lock, which holds the number of a process."""
    return {name: data for name, data in content(folder).items() if not name.endswith("lock")}


def kill_export(template: Path, step: int, *, is_full: bool) -> int:
    """The chain is whole at every moment; the export can be repeated, and gives the bytes of one that was not killed."""
    run, reference = make_run(template.parent), template.with_name("reference")
    export_full(run_files(run), template, epochs=1)
    shutil.copytree(template, reference)

    def work(chain: Path) -> None:
        if is_full:
            export_full(run_files(run), chain, epochs=2)
        else:
            export_delta(run_files(run), chain)

    work(reference)
    wanted, seen = files_of(reference), set()

    def look(chain: Path, ended: bool) -> None:
        checks = list(verify_chain(chain))
        assert [one for one in checks if one.problem] == []
        links = {one.link for one in checks if not one.link.startswith(".")}
        seen.add(len(links))
        assert len(links) == 2 or not ended
        if len(links) == 1 or not is_full:  # a full snapshot that is there would be written once more
            work(chain)
            assert files_of(chain) == wanted

    kills = survive(template, work, look, step, _TRACED)
    assert seen == {1, 2}
    return kills


def kill_rows(template: Path, step: int) -> int:
    """The state is the one before or the one after, and the links can be applied again."""
    run, chain = make_run(template.parent), template.with_name("chain")
    export_full(run_files(run), chain, epochs=1)
    export_delta(run_files(run), chain)
    apply_chain(chain, template, until=0)
    reference = template.with_name("reference")
    shutil.copytree(template, reference)
    apply_chain(chain, reference)
    return _kill_apply(template, reference, chain, step)


def kill_saved_model(template: Path, step: int) -> int:
    """The SavedModel is the one before or the one after, and the links can be applied again."""
    from tests.trainer.serving.deltas.small_saved_model import write_saved_model

    run, chain = make_run(template.parent), template.with_name("chain")
    link = export_full(run_files(run), chain, epochs=1)
    export_delta(run_files(run), chain)
    reference = template.with_name("reference")

    def prepare() -> None:
        write_saved_model(template / "1", COMMITS, 1, link.manifest.commit.sha256)
        shutil.copytree(template, reference)
        apply_chain(chain, reference / "1")

    _apart(prepare)
    import trainer.serving.saved_model_weights  # noqa: F401 - once for all children

    return _kill_apply(template, reference, chain, step, "1")


def _apart(work: object) -> None:
    """Do work in a child process: TensorFlow's threads must not start in this one, which forks."""
    child = os.fork()
    if child == 0:
        work()  # type: ignore[operator]
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def _kill_apply(template: Path, reference: Path, chain: Path, step: int, name: str = "") -> int:
    before, after = content_of(template / name), content_of(reference / name)
    assert before != after
    seen = set()

    def work(root: Path) -> None:
        apply_chain(chain, root / name)

    def look(root: Path, ended: bool) -> None:
        found = content_of(root / name)
        assert found in ((after,) if ended else (before, after))
        seen.add(found == after)
        _apart(lambda: work(root))
        assert content_of(root / name) == after
        if found != after:
            assert files_of(root) == files_of(reference), "an apply removes what a killed one has left"

    kills = survive(template, work, look, step, _TRACED)
    assert seen == {False, True}
    return kills


def content_of(place: Path) -> dict[str, bytes]:
    """What a reader finds: all files of a SavedModel, or those that ``served.json`` names."""
    from trainer.serving.deltas.served_rows import SERVED, open_served

    if not (place / SERVED).exists():
        return files_of(place)
    state = open_served(place)
    assert state is not None
    return {SERVED: (place / SERVED).read_bytes(), **content(state.folder)}


if __name__ == "__main__":
    folder, every = Path(sys.argv[2]) / "template", int(sys.argv[3])
    kind = sys.argv[1]
    if kind in ("full", "delta"):
        print(kill_export(folder, every, is_full=kind == "full"))
    else:
        print({"rows": kill_rows, "saved": kill_saved_model}[kind](folder, every))
