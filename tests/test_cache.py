"""The cache of trained models: cold, warm, damaged, foreign, changed, shared by two processes, killed and resumed."""

import importlib.util
import linecache
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

import course_utils
from course_utils import cache, files, training, vocabulary
from course_utils.cache import cache_folder, cache_key, cached, load, save, source_texts
from course_utils.encoders import GridEncoder
from course_utils.vocabulary import Vocabulary

TOY = '''
import os, signal, sys
import torch
from torch import nn
from course_utils.cache import cached
from course_utils.training import Plan, fit
from course_utils.vocabulary import Vocabulary

X = torch.linspace(-1, 1, 60).reshape(20, 3)
PLAN = Plan(updates=9, batch=4, peak=0.05)
WORDS = Vocabulary(["red", "green"])
calls, hook = [], lambda: None

class Toy(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.last(torch.dropout(self.first(x), 0.1, self.training))

def train(model, checkpoint):
    hook()
    def loss(index, generator):
        calls.append(index)
        if len(calls) == int(os.environ.get("KILL_AT", 0)):
            os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
        return (model(X[index]) - 1).square().mean()
    return {"losses": fit(model, loss, PLAN, len(X), checkpoint=checkpoint, every=2), "pair": (1, 2)}

def get(name="toy", seed=0, vocabulary=WORDS, sources=()):
    return cached(name, {"seed": seed, "plan": PLAN}, Toy, train, sources, vocabulary)

if __name__ == "__main__":
    get()
    print("calls", len(calls))
'''


def toy_module(folder, text=TOY, name="toy_for_cache"):
    """Return the script of a small training, imported as a module."""
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def start(folder, **environment):
    """Return the script running in another process, its output in a file that grows as it prints."""
    root, command = str(Path(course_utils.__file__).parents[1]), [sys.executable, folder / "toy_for_cache.py"]
    environment = {**os.environ, "PYTHONPATH": root, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", **environment}
    with open(folder / "output", "w") as output:
        return subprocess.Popen(command, env=environment, stdout=output, stderr=output)


@pytest.fixture
def toy(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "IMPORTED", time.time() + 1e6)  # a file may be edited while the tests run
    yield toy_module(tmp_path)
    del sys.modules["toy_for_cache"]


def the_file():
    file, = cache_folder().glob("*.safetensors")
    return file


def names():
    return sorted(file.name.partition(".")[2] for file in cache_folder().iterdir())


def assert_equal(left, right):
    """Two results of `cached` are the same: weights, info, eval mode."""
    assert left[1] == right[1]
    assert not left[0].training and not right[0].training
    for name, weight in left[0].state_dict().items():
        assert torch.equal(weight, right[0].state_dict()[name]), name


def test_cold_then_warm(toy, capsys):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    cold = toy.get()
    assert len(toy.calls) == 9
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(1)
    torch.rand(5)
    before = torch.get_rng_state()
    warm = toy.get()
    assert len(toy.calls) == 9 and warm[0] is not cold[0]
    assert torch.equal(torch.get_rng_state(), before)
    assert_equal(cold, warm)
    assert len(warm[1]["losses"]) == 9 and warm[1]["pair"] == [1, 2]
    assert capsys.readouterr() == ("", "")
    assert set(names()) <= {"safetensors", "lock"}
    key = files.read_tensors(the_file())[1]["key"]
    assert the_file().name == f"toy-{key[:16]}.safetensors" and len(key) == 64


def test_training_depends_on_the_seed_only(toy, monkeypatch, tmp_path):
    first = toy.get()
    torch.manual_seed(77)
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path / "other"))
    assert_equal(first, toy.get())
    assert len(toy.calls) == 18
    assert toy.get(seed=1)[1] != first[1]


def flip(data):
    return data[:-20] + bytes([data[-20] ^ 0x04]) + data[-19:]


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: b"", flip, lambda data: b"<html>no</html>"],
                         ids=["cut short", "empty", "one bit", "text"])
def test_damaged_file_is_set_aside(toy, capsys, damage):
    cold = toy.get()
    for number in (1, 2):
        damaged = damage(the_file().read_bytes())
        the_file().write_bytes(damaged)
        assert_equal(cold, toy.get())
        out, err = capsys.readouterr()
        assert out.count("\n") == 1 and out.startswith("toy: ") and "is damaged: " in out and err == ""
        assert f"; training again; kept as {the_file().name}.damaged-{number}" in out
        assert len(toy.calls) == 9 * (number + 1)
        assert the_file().with_name(f"{the_file().name}.damaged-{number}").read_bytes() == damaged
    toy.get()
    assert len(toy.calls) == 27 and capsys.readouterr().out == ""


def foreign_files(toy, path, key):
    """Yield the words of the message after having written something to `path` that is not the model of this key."""
    model = toy.Toy()
    save(path, model, {}, toy.WORDS, "0" * 64)
    yield "holds a model of other code or configuration: key 0000000000000000"
    save(path, model, {}, Vocabulary(["green", "red"]), key)
    yield "another vocabulary"
    save(path, nn.Linear(3, 4), {}, toy.WORDS, key)
    yield "bias is torch.float32 (4,) in the file, missing in the model"
    save(path, model.double(), {}, toy.WORDS, key)
    yield "first.bias is torch.float64 (4,) in the file, torch.float32 (4,) in the model"
    files.write_tensors(path, {"a": torch.zeros(1)}, {"kind": "resume"})
    yield "holds no trained model of this course"
    path.write_bytes(safetensors.torch.save({"a": torch.zeros(1)}, {"by": "another program"}))
    yield "holds no trained model of this course"


def test_foreign_files_are_set_aside(toy, capsys):
    cold, path = toy.get(), the_file()
    for number, words in enumerate(foreign_files(toy, path, files.read_tensors(path)[1]["key"]), 1):
        content = path.read_bytes()
        assert_equal(cold, toy.get())
        out = capsys.readouterr().out
        assert words in out and out.count("\n") == 1
        assert path.with_name(f"{path.name}.foreign-{number}").read_bytes() == content
        assert len(toy.calls) == 9 * (number + 1)
    assert number == 6


def test_the_key_changes_with_all_that_matters(toy, tmp_path, monkeypatch):
    model, texts = toy.Toy(), source_texts(toy.Toy(), (), (toy.train,))
    key = cache_key("toy", {"a": 1, "b": [2]}, texts, toy.WORDS)
    assert key == cache_key("toy", {"b": (2,), "a": 1}, dict(reversed(texts.items())), Vocabulary(["red", "green"]))
    others = [cache_key("toys", {"a": 1, "b": [2]}, texts, toy.WORDS),
              cache_key("toy", {"a": 1, "b": [3]}, texts, toy.WORDS),
              cache_key("toy", {"a": 1, "b": [2]}, texts, Vocabulary(["green", "red"])),
              cache_key("toy", {"a": 1, "b": [2]}, texts)]
    for change in [('- 1)', '- 2)'), ("nn.Linear(3, 4)", "nn.Linear(3, 4, bias=True)")]:  # code of train, of the model
        other = toy_module(tmp_path, TOY.replace(*change), name="toy_changed")
        others.append(cache_key("toy", {"a": 1, "b": [2]}, source_texts(other.Toy(), (), (other.train,)), toy.WORDS))
    for file in (training.__file__, files.__file__, vocabulary.__file__):  # of the course, imported by fit
        changed = {**texts, file: texts[file] + "#"}
        others.append(cache_key("toy", {"a": 1, "b": [2]}, changed, toy.WORDS))
    assert not {cache.__file__, course_utils.encoders.__file__} & texts.keys()
    assert cache.__file__ in source_texts(model, [cache])
    assert course_utils.encoders.__file__ in source_texts(GridEncoder())
    assert course_utils.encoders.__file__ in source_texts(nn.Sequential(GridEncoder()))
    monkeypatch.setattr(torch, "__version__", "9.9.0")
    others.append(cache_key("toy", {"a": 1, "b": [2]}, texts, toy.WORDS))
    assert len({key, *others}) == len(others) + 1


def test_changed_code_trains_again(toy, tmp_path):
    toy.get()
    other = toy_module(tmp_path, TOY.replace("- 1)", "- 2)"), name="toy_changed")
    other.get()
    assert len(toy.calls) == len(other.calls) == 9
    assert len(list(cache_folder().glob("*.safetensors"))) == 2
    toy.get(sources=(Vocabulary,)), toy.get(sources=(Vocabulary,))
    assert len(toy.calls) == 18


def test_source_of_a_notebook_class():
    text = "import torch\nclass Cell(torch.nn.Module):\n    def forward(self, x):\n        return x + {}\n"
    found = []
    for number in (1, 2):
        cell = f"<cell {number}>"
        linecache.cache[cell] = (len(text), None, text.format(number).splitlines(True), cell)
        space = {"__name__": "__main__"}
        exec(compile(text.format(number), cell, "exec"), space)
        found.append(source_texts(space["Cell"]()))
    assert [f"x + {number}" in "".join(texts.values()) for number, texts in enumerate(found, 1)] == [True, True]
    assert cache_key("a", {}, found[0]) != cache_key("a", {}, found[1])


def test_code_edited_after_its_import_is_not_cached(toy, capsys, monkeypatch):
    monkeypatch.setattr(cache, "IMPORTED", 0.0)
    assert_equal(toy.get(), toy.get())
    assert len(toy.calls) == 18 and not list(cache_folder().glob("*.safetensors"))
    assert capsys.readouterr().out.count("was edited after it was imported; restart Python") == 2


def test_two_processes_train_once(toy, tmp_path):
    def hook():  # in the middle of this process's training another one asks for the same model
        other.append(start(tmp_path))
        for _ in range(1200):
            if "\n" in (tmp_path / "output").read_text() or other[0].poll() is not None:
                return
            time.sleep(0.05)
    other, toy.hook = [], hook
    result = toy.get()
    assert other[0].wait(60) == 0
    assert (tmp_path / "output").read_text().splitlines() == [
        "toy: another process is training this model; waiting for it", "calls 0"]
    assert len(toy.calls) == 9
    assert_equal(result, toy.get())


def test_killed_in_the_middle_goes_on(toy, tmp_path, monkeypatch):
    assert start(tmp_path, KILL_AT="6").wait(60) not in (0, 1)
    assert (tmp_path / "output").read_text() == ""
    assert set(names()) <= {"partial", "lock"} and "partial" in names()
    resumed = toy.get()
    assert len(toy.calls) == 5  # four of nine updates were in the file
    assert set(names()) <= {"safetensors", "lock"}
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path / "other"))
    assert_equal(resumed, toy.get())
    assert len(toy.calls) == 14


def test_a_failed_training_does_not_block_the_next(toy):
    def hook():
        raise RuntimeError("no memory")
    toy.hook, quiet = hook, toy.hook
    with pytest.raises(RuntimeError, match="no memory"):
        toy.get()
    toy.hook = quiet
    toy.get()
    assert len(toy.calls) == 9


def test_resume_files_are_removed_but_those_set_aside_are_not(toy):
    def train(model, checkpoint):
        for end in ("", "-2", ".damaged-1", ".123.tmp"):
            Path(f"{checkpoint}{end}").write_text("")
        return {}
    cached("toy", {}, toy.Toy, train)
    assert set(names()) - {"lock"} == {"safetensors", "partial.damaged-1"}


def test_folder_that_cannot_be_written(toy, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path / "file" / "cache"))
    _, info = toy.get()
    out, err = capsys.readouterr()
    assert len(info["losses"]) == 9 and err == "" and out.count("\n") == 1
    assert out.startswith("toy: cannot write to the folder ") and "training goes on without a cache" in out


def test_disk_full_at_the_end(toy, monkeypatch, capsys):
    def full(*arguments):
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(cache, "write_tensors", full)
    _, info = toy.get()
    out = capsys.readouterr().out
    assert len(info["losses"]) == 9 and "cannot be kept in" in out and "No space left on device" in out


def test_save_and_load(tmp_path):
    words, path = Vocabulary(["red", "green"]), tmp_path / "model"
    torch.manual_seed(0)
    model, other = nn.Linear(2, 3), nn.Linear(2, 3)
    save(path, model, {"loss": 0.5}, words)
    assert load(path, other, Vocabulary(["red", "green"])) == {"loss": 0.5}
    assert torch.equal(model.weight, other.weight) and not other.training
    assert [file.name for file in tmp_path.iterdir()] == ["model"]
    third = nn.Linear(2, 3)
    weight = third.weight.clone()
    for wrong, message in [
            (Vocabulary(["green", "red"]), r"5 words, .* has 5; .* id 3, \['red'\] in the file, \['green'\] here"),
            (Vocabulary(["red"]), r"5 words, .* has 4; .* id 4, \['green'\] in the file, \[\] here"),
            (None, "vocabulary has 0")]:
        with pytest.raises(ValueError, match=message):
            load(path, third, wrong)
    assert torch.equal(third.weight, weight) and third.training
    with pytest.raises(ValueError, match=r"not fit the model Linear: weight is torch.float32 \(3, 2\) in the file"):
        load(path, nn.Linear(4, 3), words)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="is damaged"):
        load(path, third, words)


def test_tied_weights_survive(tmp_path):
    model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    model[1].weight = model[0].weight
    save(tmp_path / "tied", model, {})
    other = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    load(tmp_path / "tied", other)
    assert torch.equal(other[1].weight, model[0].weight)


def test_bad_input(toy):
    @dataclass
    class Recipe:
        objects: int = 2
    assert cached("a", {"recipe": Recipe()}, toy.Toy, lambda model, checkpoint: {"fine": True})[1] == {"fine": True}
    with pytest.raises(ValueError, match=r"name='a/b'; expected letters"):
        cached("a/b", {}, toy.Toy, toy.train)
    with pytest.raises(TypeError, match="config cannot be kept as JSON: it holds a Tensor; expected a dict"):
        cached("a", {"rate": torch.zeros(1)}, toy.Toy, toy.train)
    with pytest.raises(TypeError, match="info, which train returned, cannot be kept as JSON: it holds a Tensor"):
        cached("a", {}, toy.Toy, lambda model, checkpoint: {"loss": torch.zeros(1)})
    with pytest.raises(TypeError, match="info, which train returned, cannot be kept as JSON: it is a NoneType"):
        cached("a", {}, toy.Toy, lambda model, checkpoint: None)
    with pytest.raises(TypeError, match="has no source text for the cache's key"):
        cached("a", {}, toy.Toy, toy.train, sources=[3])


def test_cache_folder(monkeypatch):
    monkeypatch.delenv("COURSE_CACHE", raising=False)
    assert "captioning-course" in str(cache_folder()) and cache_folder().is_absolute()
    monkeypatch.setenv("COURSE_CACHE", "elsewhere")
    assert cache_folder() == Path("elsewhere")
