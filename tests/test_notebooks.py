"""The stored notebooks keep the course's rules; build.py and each of its rules can fail."""

import subprocess
import sys

import build
import nbformat
import pytest
import rules
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

NOTEBOOKS = sorted(build.FOLDER.glob("[0-9][0-9]_*.ipynb"))
MIRROR = "course_utils.captioners.interface.reorder"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_keeps_the_rules(path):
    assert build.check(path) == []


def test_package_keeps_its_size():
    assert build.check_package() == []


# Building: tiny notebooks, each in a kernel of its own.


def save(path, *cells):
    nbformat.write(new_notebook(cells=list(cells)), path)
    return path


def test_two_builds_are_byte_identical_and_leave_no_trace(tmp_path, capsys):
    progress = """\
import sys, time, tqdm
print("before")
for _ in tqdm.tqdm(range(3), file=sys.stdout, leave=False):
    time.sleep(0.01)
print("after")"""
    widget = "import ipywidgets\nipywidgets.IntSlider(description='word')"
    picture = f"""\
from IPython.display import Image, display
import base64
for alt in ("one", "two"):
    print(alt)
    display(Image(base64.b64decode("{PIXEL}"), alt=alt))"""
    cells = [progress, widget, picture, "list({'c', 'd', 'e'})", "import os\nprint(os.listdir('.'))"]
    path = save(tmp_path / "01_tiny.ipynb", new_markdown_cell("# 01"), *map(new_code_cell, cells))
    build.build(path)
    assert "01_tiny.ipynb: " in capsys.readouterr().out
    first = path.read_bytes()
    build.build(path)
    assert path.read_bytes() == first
    assert list(tmp_path.iterdir()) == [path]
    notebook = nbformat.read(path, as_version=4)
    assert [cell.id for cell in notebook.cells] == [f"cell-00{k}" for k in range(6)]
    assert [cell.execution_count for cell in notebook.cells[1:]] == [1, 2, 3, 4, 5]
    assert [output.text for output in notebook.cells[1].outputs] == ["before\nafter\n"]
    assert list(notebook.cells[2].outputs[0].data) == ["text/plain"]
    assert [output.output_type for output in notebook.cells[3].outputs] == ["stream", "display_data"] * 2
    assert notebook.cells[3].outputs[3].metadata["image/png"]["alt"] == "two"
    assert path.name in notebook.cells[5].outputs[0].text  # the kernel starts where the notebook lies
    assert "widgets" not in notebook.metadata and rules.WIDGET.encode() not in first


@pytest.mark.parametrize(
    "source, message",
    [
        ("import sys\nprint('a warning', file=sys.stderr)", "a warning"),
        ("def divide(a):\n    return a / 0\ndivide(1)", "----> 2     return a / 0"),
        ("import os\nos._exit(1)", "Kernel died"),
    ],
    ids=["stderr", "exception", "dead kernel"],
)
def test_a_failed_build_names_the_cell_and_leaves_the_file(tmp_path, source, message):
    path = save(tmp_path / "01_tiny.ipynb", new_markdown_cell("# 01"), new_code_cell("1"), new_code_cell(source))
    before = path.read_bytes()
    with pytest.raises(build.BuildError) as error:
        build.build(path)
    assert str(error.value).startswith("01_tiny.ipynb, code cell [2]: ")
    assert message in str(error.value)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_refresh_writes_the_generated_cells():
    cells = [new_code_cell("", metadata={"tags": ["setup"]}), new_code_cell("stale", metadata={"mirror": MIRROR})]
    method = new_code_cell("", metadata={"mirror": "course_utils.captioners.interface.Captioner.forward"})
    build.refresh(new_notebook(cells=[*cells, method, plain := new_code_cell("1 + 1")]))
    assert cells[0].source == rules.SETUP
    assert cells[1].source.startswith("def reorder(state: Any, index: Tensor)")
    assert method.source.startswith("def forward(self, image") and "\n    state, scores" in method.source
    assert plain.source == "1 + 1"


@pytest.mark.parametrize("name", ["course_utils.nothing", "course_utils.captioners.interface.reorders", "", "math.pi"])
def test_a_mirror_of_nothing_is_named(tmp_path, name):
    path = save(tmp_path / "01_tiny.ipynb", new_code_cell("", metadata={"mirror": name}))
    with pytest.raises(build.BuildError, match=f"01_tiny.ipynb: mirror '{name}' names no function, class or method"):
        build.build(path)


@pytest.mark.parametrize(
    "written, shown",
    [
        ("plain  \ntext", "plain  \ntext"),
        ("\r 50%|##  | 1/2\r100%|####| 2/2\r                \rdone\n", "done\n"),
        ("long line\rshort\nnext", "shortline\nnext"),
        ("\r 0%\r    \r", ""),
    ],
)
def test_terminal_shows_what_is_left(written, shown):
    assert build.terminal(written) == shown


def test_setup_cell_in_colab_and_elsewhere(tmp_path):
    assert len(rules.SETUP.splitlines()) <= 12 and max(map(len, rules.SETUP.splitlines())) <= 120
    (tmp_path / "cell.py").write_text(rules.SETUP)
    script = """
import importlib.util, os, subprocess, sys
cell, found, calls = open("cell.py").read(), importlib.util.find_spec, []
def clone(command, check):
    calls.append(command)
    os.mkdir(command[-1])
subprocess.run = clone
exec(cell), exec(cell)  # where the course is installed
assert not calls and not os.path.exists("course")
importlib.util.find_spec = lambda name: None if name == "course_utils" else found(name)
exec(cell), exec(cell)  # where it is not
assert len(calls) == 1
print(*calls[0])
print(sys.path[0])
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr == ""
    *ready, command, path = done.stdout.splitlines()
    assert len(ready) == 4 and len(set(ready)) == 1 and ready[0].startswith("ready: Python 3.")
    assert command == f"git clone -q --depth 1 {rules.REPOSITORY} course"
    assert path == str(tmp_path / "course")


# Checking: a notebook that keeps every rule, then one fault at a time.


def good():
    sections = [*rules.OPENING, "A section of its own", *rules.CLOSING]
    image = new_output("display_data", data={"image/png": PIXEL}, metadata={"image/png": {"alt": "a grey pixel"}})
    page = new_output("display_data", data={"text/html": '<p><img src="x" alt="1 > 0"></p>', "text/plain": "<p>"})
    cells = [
        new_markdown_cell("# 01 Title\n\n**You will be able to** check.\n\n**Time:** 5 minutes"),
        *(new_markdown_cell(f"## {name}\n\n```\n## a comment in code\n```\n![a plot](x.png)") for name in sections),
        new_code_cell(rules.SETUP, metadata={"tags": ["setup"]}, outputs=[new_output("stream", text="ready")]),
        new_code_cell(rules.mirrored(MIRROR), metadata={"mirror": MIRROR}),
        *(new_code_cell("1\n" * 3, outputs=[image, page]) for _ in range(18)),
    ]
    for k, cell in enumerate(cells):
        cell["id"] = rules.cell_id(k)
    codes = [cell for cell in cells if cell.cell_type == "code"]
    for n, cell in enumerate(codes, 1):
        cell["execution_count"] = n
    return cells, codes


def problems(tmp_path, cells):
    (notebook := new_notebook()).cells = cells
    (path := tmp_path / "01_good.ipynb").write_text(nbformat.v4.writes(notebook))
    return build.check(path)


def test_a_good_notebook_has_no_problem(tmp_path):
    assert problems(tmp_path, good()[0]) == []


def change(cell, **parts):
    cell.update(nbformat.from_dict(parts))


FAULTS = {
    "first code cell is not the set-up": lambda cells, codes: change(codes[0], source=rules.SETUP + "\n"),
    "execution count None, expected 3": lambda cells, codes: change(codes[2], execution_count=None),
    "execution count 9, expected 4": lambda cells, codes: change(codes[3], execution_count=9),
    "mirror of course_utils.captioners.interface.reorder is stale": lambda cells, codes: change(codes[1], source="x"),
    "mirror 'course_utils.gone' names": lambda cells, codes: change(codes[1], metadata={"mirror": "course_utils.gone"}),
    "41 lines, more than 40": lambda cells, codes: change(codes[5], source="1\n" * 41),
    "90 % of the code cells": lambda cells, codes: [change(cell, source="1\n" * 21) for cell in codes[-3:]],
    "the median <= 8": lambda cells, codes: [change(cell, source="1\n" * 9) for cell in codes[2:]],
    "an error": lambda cells, codes: change(
        codes[4], outputs=[new_output("error", ename="E", evalue="", traceback=[])]
    ),
    "or stderr": lambda cells, codes: change(codes[4], outputs=[new_output("stream", name="stderr", text="x")]),
    "from run to run: '0%|'": lambda cells, codes: change(codes[4], outputs=[new_output("stream", text="100%|##")]),
    "from run to run: ' at 0x": lambda cells, codes: change(
        codes[4], outputs=[new_output("display_data", data={"text/plain": "<Axes at 0x7f00dead>"})]
    ),
    "image/png without alt": lambda cells, codes: change(
        codes[4], outputs=[new_output("display_data", data={"image/png": PIXEL}, metadata={"image/png": {"alt": " "}})]
    ),
    "image/svg+xml without alt": lambda cells, codes: change(
        codes[4], outputs=[new_output("display_data", data={"image/svg+xml": "<svg/>"})]
    ),
    "<img> without alt": lambda cells, codes: change(
        codes[4], outputs=[new_output("display_data", data={"text/html": '<img alt="a"> <img title=" alt">'})]
    ),
    "cell-003: <img> without alt": lambda cells, codes: change(cells[3], source=cells[3].source + "\n<img src='x'>"),
    "cell-003: picture without alt": lambda cells, codes: change(cells[3], source=cells[3].source + "\n![](x.png)"),
    "start with '# 01 '": lambda cells, codes: change(cells[0], source="Title " + cells[0].source),
    "must be markdown": lambda cells, codes: cells.pop(0),
    "lacks **You will be able to**": lambda cells, codes: change(cells[0], source="# 01 Title\n**Time:** 5 minutes"),
    "lacks **Time:**": lambda cells, codes: change(cells[0], source="# 01 Title\n**You will be able to** check."),
    "the sections must be": lambda cells, codes: change(cells[2], source="## Legends"),
    "one or more of content": lambda cells, codes: cells.pop(3),
    "; found ['Set-up', 'Legend', 'A": lambda cells, codes: cells.insert(9, cells.pop(8)),
    "cell ids are not": lambda cells, codes: change(cells[4], id="cell-005"),
    "widget ids or state": lambda cells, codes: change(
        codes[4], outputs=[new_output("display_data", data={rules.WIDGET + "-view+json": {"model_id": "1"}})]
    ),
    "larger than 500 kB": lambda cells, codes: change(cells[3], source=cells[3].source + "x" * 500_000),
    "not a notebook": lambda cells, codes: change(codes[4], outputs=[{"output_type": "unknown"}]),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("message", FAULTS)
def test_every_rule_can_fail(tmp_path, message):
    cells, codes = good()
    FAULTS[message](cells, codes)
    found = problems(tmp_path, cells)
    assert any(problem.startswith("01_good.ipynb: ") and message in problem for problem in found), found


def test_a_file_that_is_no_notebook_is_a_problem(tmp_path):
    (path := tmp_path / "01_bad.ipynb").write_text("{")
    assert build.check(path)[0].startswith("01_bad.ipynb: not a notebook: ")


def test_package_rules_can_fail(tmp_path):
    (tmp_path / "explorers").mkdir()
    for k in range(11):
        (tmp_path / f"part{k}.py").write_text('"""Prose\n\ndoes not count."""\n# nor does this\n\n' + "x\n" * 280)
    (tmp_path / "explorers" / "views.py").write_text("x\n" * 301)
    found = build.check_package(tmp_path)
    assert found[0] == "explorers/views.py: 301 lines, more than 300"
    assert found[1:] == ["course_utils without explorers: 3080 lines of code, more than 3,000"]
    (tmp_path / "explorers" / "views.py").write_text("x\n" * 300)
    (tmp_path / "part0.py").write_text("x\n" * 200)
    assert build.check_package(tmp_path) == []


def test_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(build, "FOLDER", tmp_path)
    monkeypatch.setattr(build, "check_package", lambda: [])
    assert build.main(["--check"]) == 0
    assert "0 notebooks: no problem" in capsys.readouterr().out
    save(tmp_path / "01_tiny.ipynb", new_code_cell("1 / 0"))
    assert build.main(["--check", "01"]) == 1
    assert "01_tiny.ipynb: the first code cell is not" in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"01_tiny.ipynb, code cell \[1\]: (.|\n)*ZeroDivisionError"):
        build.main(["01"])
    with pytest.raises(SystemExit):
        build.main(["07"])
    assert "no notebook ['07']" in capsys.readouterr().err
