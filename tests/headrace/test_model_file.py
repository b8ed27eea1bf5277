from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headrace.model_file import ModelFileError, chosen_models, load_models
from transforms.errors import DuplicateInput, InputError, TypeMismatch

ROOT = Path(__file__).parents[2]
ALONE = ("first_model", "preprocessing_fn", "torch_dlrm")  # one model each
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.stem not in ALONE)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_define_three_models_of_two_clients_that_share_most_components(path):
    models = load_models(path)
    assert len(models) == 3
    assert len({model.client for model in models}) == 2
    sets = [{item.fingerprint for item in model.inputs.values()} for model in models]
    assert len(set.intersection(*sets)) / len(set.union(*sets)) > 0.6


def test_the_readme_shows_the_first_example_and_the_papers_graph_in_it():
    text = (ROOT / "examples" / "first_model.py").read_text(encoding="utf-8")
    assert f"```python\n{text}```" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 30
    (model,) = load_models(ROOT / "examples" / "first_model.py")
    assert list(model.inputs) == ["overlap", "query_x_hour", "price"]


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "models.py"
    path.write_text("import headrace as hr\n" + text, encoding="utf-8")
    return path


def test_models_in_a_list_are_found_in_order(tmp_path):
    path = written(tmp_path, 'ms = [hr.Model(f"m{i}", client="c", label="y") for i in range(3)]\n')
    assert [model.name for model in load_models(path)] == ["m0", "m1", "m2"]


def test_a_neighbouring_module_can_be_imported(tmp_path):
    (tmp_path / "my_features.py").write_text('import headrace as hr\nq = hr.text("q")\n', encoding="utf-8")
    path = written(
        tmp_path, 'from my_features import q\nm = hr.Model("m", client="c", label="y")\nm.input("q", q.length())\n'
    )
    assert load_models(path)[0].inputs["q"].fingerprint


@pytest.mark.parametrize(
    ("text", "what", "value"),
    [
        ("1 / 0\n", "raised an exception", "ZeroDivisionError"),
        ("def broken(:\n", "not valid Python", ""),
        ("x = 3\n", "must define a model", ""),
        ("import sys; sys.exit(3)\n", "must not exit", "3"),
        (
            'a = hr.Model("m", client="c", label="y")\nb = hr.Model("m", client="c", label="y")\n',
            "must have different names",
            "m",
        ),
    ],
)
def test_a_bad_file_is_one_clear_error_with_its_place(tmp_path, text, what, value):
    path = written(tmp_path, text)
    with pytest.raises(ModelFileError, match=what) as caught:
        load_models(path)
    assert str(path) in caught.value.where
    assert value in str(caught.value.value or "")


def test_the_line_of_the_mistake_is_named(tmp_path):
    path = written(tmp_path, 'm = hr.Model("m", client="c", label="y")\nm.input("p", hr.float32("price").lower())\n')
    with pytest.raises(TypeMismatch) as caught:
        load_models(path)
    assert f'{path}:3: m.input("p", hr.float32("price").lower())' in caught.value.where
    path = written(
        tmp_path, 'm = hr.Model("m", client="c", label="y")\nfor _ in "ab":\n    m.input("p", hr.float32("price"))\n'
    )
    with pytest.raises(DuplicateInput, match="different names") as caught:
        load_models(path)
    assert f"{path}:4" in caught.value.where


def test_a_missing_file(tmp_path):
    with pytest.raises(ModelFileError, match="does not exist"):
        load_models(tmp_path / "nothing.py")


def model_in(folder: Path, name: str, head: str = "") -> str:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.py"
    path.write_text(
        f'{head}import headrace as hr\nmodel = hr.Model("{name}", client="c", label="y")\n', encoding="utf-8"
    )
    return str(path)


def test_models_of_several_files_come_in_their_order(tmp_path):
    paths = [model_in(tmp_path / "b", "second"), model_in(tmp_path / "a", "first")]
    assert [each.name for each in chosen_models(paths)] == ["second", "first"]
    assert [each.name for each in chosen_models([paths[0], *paths])] == ["second", "first"]
    assert [each.name for each in chosen_models(paths, ["first"])] == ["first"]
    with pytest.raises(InputError, match="no such model"):
        chosen_models(paths, ["frist"])


def test_a_name_in_two_files_is_refused(tmp_path):
    paths = [model_in(tmp_path / folder, "same") for folder in ("a", "b")]
    with pytest.raises(ModelFileError, match="must have different names") as refused:
        chosen_models(paths)
    assert all(path in refused.value.where for path in paths)


def test_files_that_import_different_modules_of_one_name_are_refused(tmp_path):
    paths = [model_in(tmp_path / folder, folder, "import words_of_model\n") for folder in ("a", "b")]
    for folder in ("a", "b"):
        (tmp_path / folder / "words_of_model.py").write_text(f"WORD = {folder!r}\n", encoding="utf-8")
    with pytest.raises(ModelFileError, match="different modules of one name") as refused:
        chosen_models(paths)
    assert "words_of_model" in str(refused.value.value)
    del sys.modules["words_of_model"]
    (tmp_path / "b" / "words_of_model.py").unlink()  # one module: both files have it
    assert [each.name for each in chosen_models(paths)] == ["a", "b"]
    del sys.modules["words_of_model"]
