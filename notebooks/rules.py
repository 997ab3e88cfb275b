"""What every notebook of the course must be: its generated cells, its template, and the checks of what is stored."""

import ast
import inspect
import pkgutil
import re
import statistics
import textwrap
import tomllib
from pathlib import Path

import nbformat

FOLDER = Path(__file__).resolve().parent
REPOSITORY = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text("utf-8"))["project"]["urls"]["Repository"]
SETUP = """\
import importlib.util
import sys
from pathlib import Path
from subprocess import run
import torch

if importlib.util.find_spec("course_utils") is None:  # in Colab: fetch the course's code, install nothing
    if not Path("course").is_dir():
        run("git clone -q --depth 1 REPOSITORY course".split(), check=True)
    sys.path.insert(0, str(Path("course").resolve()))
torch.set_num_threads(1)  # models as small as these run slower on more
print(f"ready: Python {sys.version.split()[0]}, torch {torch.__version__}, {torch.get_default_device()}, 1 thread")
""".rstrip().replace("REPOSITORY", REPOSITORY)
GOALS, MINUTES = "**You will be able to**", "**Time:**"
OPENING = ["Set-up", "Legend"]
CLOSING = ["Results and limits", "Bug clinic", "Exercises", "Quiz", "Recap", "References"]
WIDGET = "application/vnd.jupyter.widget"
FLEETING = re.compile(r"\d%\||\x1b\[| at 0x[0-9a-f]{6,}|ipykernel_\d+")  # progress bars, colours, addresses, pids
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
IMAGE = re.compile(r"""<img\b(?:[^>"']|"[^"]*"|'[^']*')*>""", re.IGNORECASE)


def cell_id(k: int) -> str:
    """Return the id of a notebook's k-th cell."""
    return f"cell-{k:03d}"


def mirrored(name: str) -> str:
    """Return the source of the function, class or method with this dotted name, as a notebook shows it."""
    try:
        return textwrap.dedent(inspect.getsource(pkgutil.resolve_name(name))).rstrip()
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"mirror {name!r} names no function, class or method to show: {error}") from None


def check_code(cells: list):
    """Yield what is wrong with the code cells: set-up, order of execution, mirrors, lengths."""
    if not cells or cells[0].source != SETUP:
        yield 'the first code cell is not the set-up cell: tag it "setup" and build'
    lengths = [len(cell.source.splitlines()) for cell in cells] or [0]
    for n, (cell, length) in enumerate(zip(cells, lengths), 1):
        if cell.execution_count != n:
            yield f"{cell.id}: execution count {cell.execution_count}, expected {n}: build the notebook"
        try:
            if "mirror" in cell.metadata and cell.source != mirrored(cell.metadata.mirror):
                yield f"{cell.id}: the mirror of {cell.metadata.mirror} is stale: build the notebook"
        except ValueError as error:
            yield f"{cell.id}: {error}"
        if length > 40:
            yield f"{cell.id}: {length} lines, more than 40"
    if sum(length <= 20 for length in lengths) < 0.9 * len(lengths) or statistics.median(lengths) > 8:
        yield f"90 % of the code cells must have <= 20 lines and the median <= 8; found {sorted(lengths)}"


def check_cell(cell):
    """Yield what is wrong with what the reader sees of a cell: errors, traces of a run, pictures without alt text."""
    pages = [cell.source] if cell.cell_type == "markdown" else []
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        pages.append(data.get("text/html", ""))
        if output.output_type == "error" or output.get("name") == "stderr":
            yield "an error or stderr is stored"
        if trace := FLEETING.search(output.get("text", "") + data.get("text/plain", "")):
            yield f"its output differs from run to run: {trace.group()!r}"
        for kind in data:
            if kind.startswith("image/") and not output.metadata.get(kind, {}).get("alt", "").strip():
                yield f"{kind} without alt text"
    for page in pages:
        if any(not re.search(r"\salt\s*=", image, re.IGNORECASE) for image in IMAGE.findall(page)):
            yield "<img> without alt text"
    if cell.cell_type == "markdown" and re.search(r"!\[\s*\][(\[]", cell.source):
        yield "picture without alt text"


def check_template(cells: list, number: str):
    """Yield where the notebook leaves the course's template."""
    first = cells[0].source if cells and cells[0].cell_type == "markdown" else ""
    if not first.startswith(f"# {number} "):
        yield f"the first cell must be markdown and start with '# {number} ' and the title"
    yield from (f"the first cell lacks {part}" for part in (GOALS, MINUTES) if part not in first)
    text = "\n".join(FENCE.sub("", cell.source) for cell in cells if cell.cell_type == "markdown")
    found = re.findall(r"^## +(.+?)\s*$", text, re.MULTILINE)
    if found[:2] != OPENING or found[-len(CLOSING) :] != CLOSING or len(found) <= len(OPENING + CLOSING):
        yield f"the sections must be {OPENING}, one or more of content, {CLOSING}; found {found}"


def check(path: Path) -> list[str]:
    """Return every problem of one stored notebook, without executing it."""
    text = path.read_text("utf-8")
    problems = ["larger than 500 kB"] if path.stat().st_size > 500_000 else []
    try:
        notebook = nbformat.v4.reads(text)
        ids = [cell_id(k) for k in range(len(notebook.cells))]
        if [cell.get("id") for cell in notebook.cells] != ids:
            problems.append("the cell ids are not cell-000, cell-001, ...: build the notebook")
        for cell, name in zip(notebook.cells, ids):
            cell["id"] = name
        nbformat.validate(notebook)
    except (ValueError, AttributeError, nbformat.ValidationError) as error:
        return [f"{path.name}: not a notebook: {str(error).splitlines()[0]}"]
    problems += check_code([cell for cell in notebook.cells if cell.cell_type == "code"])
    problems += [f"{cell.id}: {problem}" for cell in notebook.cells for problem in check_cell(cell)]
    problems += check_template(notebook.cells, path.name[:2])
    if WIDGET in text:
        problems.append("widget ids or state are stored: build the notebook")
    return [f"{path.name}: {problem}" for problem in problems]


def code_lines(text: str) -> int:
    """Return the lines of a Python source that hold code: neither blank, nor comment, nor docstring."""
    prose = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            prose.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(bool(line.strip()) and not line.lstrip().startswith("#") and n not in prose for n, line in lines)


def check_package(package: Path = FOLDER.parent / "course_utils") -> list[str]:
    """Return where the package is longer than the course allows."""
    texts = {path.relative_to(package): path.read_text("utf-8") for path in sorted(package.rglob("*.py"))}
    lengths = {path: len(text.splitlines()) for path, text in texts.items()}
    problems = [f"{path}: {length} lines, more than 300" for path, length in lengths.items() if length > 300]
    total = sum(code_lines(text) for path, text in texts.items() if path.parts[0] != "explorers")
    long = [f"course_utils without explorers: {total} lines of code, more than 3,000"] if total > 3000 else []
    return problems + long
