"""The repository keeps its promises: one command, floors only, one direction of imports, no pickle, one address."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import rules

ROOT = Path(__file__).resolve().parents[1]
INSTALL = "python3 -m venv .venv && . .venv/bin/activate && pip install -r requirements.txt"
OPEN_COMMAND = f"{INSTALL} && jupyter lab notebooks/"
TEST_COMMAND = f"{INSTALL} -r tests/requirements.txt && pytest"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
LISTS = ("requirements.txt", "tests/requirements.txt")
FLOOR = re.compile(r"(?P<name>[A-Za-z0-9._-]+)>=\d[\d.]*  +# \w.*")

# Who may import whom: a line imports its own line and those before it.
LAYERS = [
    ["scenes", "vocabulary", "datasets", "files"],
    ["layers", "layers_backward", "attention", "encoders"],
    ["captioners"],
    ["decoding", "metrics", "failures"],
    ["training", "cache", "self_critical", "hard_attention"],
    ["plots", "cards"],
    ["recipes", "recipes_attention", "pointing"],
    ["studies"],
    ["quiz"],
    ["explorers"],
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def sources(*folders):
    return {path: path.read_text("utf-8") for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))}


def tracked():
    """Return the files that belong to the repository, also those not yet committed."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed if name and (ROOT / name).is_file()]


# Commands and requirements


def test_commands_stand_in_the_readme_and_ci_runs_the_second():
    readme, ci = (ROOT / "README.md").read_text("utf-8"), (ROOT / ".ci/run").read_text("utf-8")
    assert OPEN_COMMAND in readme.splitlines()
    assert TEST_COMMAND in readme.splitlines()
    assert ci.splitlines()[-1] == TEST_COMMAND
    assert "set -euo pipefail" in ci.splitlines()


@pytest.mark.parametrize("name", LISTS)
def test_requirements_are_floors_with_a_reason(name):
    lines = [line for line in (ROOT / name).read_text("utf-8").splitlines() if not line.startswith("#")]
    if name == "requirements.txt":
        assert re.fullmatch(r"-e \. +# \w.*", lines.pop()), "the last line must install course_utils: '-e .  # why'"
    assert [line for line in lines if not FLOOR.fullmatch(line)] == []


def test_pyproject_repeats_no_requirement():
    names = [FLOOR.match(line)["name"] for file in LISTS for line in (ROOT / file).open() if FLOOR.match(line)]
    extras = PYPROJECT["project"]["optional-dependencies"].values()
    assert len(set(names)) == len(names) > 15
    assert set(names).isdisjoint(re.split(r"[\[>=]", need)[0] for extra in extras for need in extra)
    assert (
        "dependencies" not in PYPROJECT["project"] and "dependencies" not in PYPROJECT["tool"]["setuptools"]["dynamic"]
    )


def test_one_version():
    assert PYPROJECT["tool"]["setuptools"]["dynamic"] == {"version": {"attr": "course_utils.__version__"}}
    assert "version" not in PYPROJECT["project"]


# The package


def imported(path, text):
    """Return the dotted names of course_utils that a file imports, wherever in the file."""
    package = ["course_utils", *path.relative_to(ROOT / "course_utils").parts[:-1]]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            base = ".".join([*base, *filter(None, [node.module])])
            yield from (f"{base}.{name.name}" for name in node.names)


def upward_imports(files):
    """Return every import of a higher line by a lower one."""
    for path, text in files.items():
        own = path.relative_to(ROOT / "course_utils").parts[0].removesuffix(".py")
        for name in imported(path, text) if own != "__init__" else []:
            part = name.split(".")[1:2]
            if name.startswith("course_utils.") and part[0] in RANK and RANK[part[0]] > RANK[own]:
                yield f"{own} imports {name}"


def test_imports_go_one_way():
    files = sources("course_utils")
    modules = {path.relative_to(ROOT / "course_utils").parts[0].removesuffix(".py") for path in files} - {"__init__"}
    assert sorted(modules - set(RANK)) == [], "give each new module its line in LAYERS"
    assert list(upward_imports(files)) == []


@pytest.mark.parametrize(
    "file, text",
    [
        ("scenes.py", "import course_utils.plots"),
        ("layers.py", "def late():\n    from course_utils import training"),
        ("captioners/show_and_tell.py", "from ..decoding.search import greedy"),
        ("studies.py", "from .quiz import Quiz"),
    ],
)
def test_an_upward_import_is_found(file, text):
    assert list(upward_imports({ROOT / "course_utils" / file: text}))
    assert not list(upward_imports({ROOT / "course_utils/explorers/x.py": text}))


def test_import_is_light():
    script = "import sys, course_utils; print(*{'torch', 'numpy', 'matplotlib', 'ipywidgets'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def unsafe(text):
    """Return the star imports and the ways to read or write a pickle in a source."""
    for node in ast.walk(ast.parse(text)):
        names = [name.name for name in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *names, *(f"{node.module}.{name}" for name in names)]
        yield from (name for name in names if name in ("*", "pickle", "dill", "shelve", "torch.load", "torch.save"))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("torch.load", "torch.save"):
            yield ast.unparse(node)
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            yield "allow_pickle"


def test_no_star_import_and_no_pickle():
    files = sources("course_utils", "notebooks")
    assert {str(path): found for path, text in files.items() if (found := list(unsafe(text)))} == {}


@pytest.mark.parametrize(
    "text", ["from a import *", "import pickle", "from torch import load", "torch.save(1, 'x')", "f(allow_pickle=True)"]
)
def test_an_unsafe_line_is_found(text):
    assert list(unsafe(text))


# The repository


def test_ruff():
    pytest.importorskip("ruff", reason="pip install -r tests/requirements.txt")
    done = subprocess.run([sys.executable, "-m", "ruff", "check", "."], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_address_stands_in_one_place():
    holders = [path.relative_to(ROOT) for path in tracked() if rules.REPOSITORY.encode() in path.read_bytes()]
    assert [path for path in holders if path.suffix != ".ipynb"] == [Path("pyproject.toml")]


def test_no_file_names_a_folder_of_one_machine():
    private = re.compile(rb"(?<![\w.~-])/(?:work|root|home/\w+|Users/\w+)/\w")
    assert private.search(b"see " + b"/work" + b"/main") and not private.search(b"homework/main")
    assert [str(path.relative_to(ROOT)) for path in tracked() if private.search(path.read_bytes())] == []
