"""Builds the notebooks: writes their generated cells, executes from a fresh kernel, stores the same bytes each time.

    python notebooks/build.py [NN ...]   builds these notebooks, or all, then checks them
    python notebooks/build.py --check    executes nothing; prints every problem of what is stored, exits 1 if any

A code cell tagged "setup" is the set-up cell; one whose metadata has {"mirror": "course_utils.layers.lstm_step"} shows
that definition. Both are written here, never by hand. What a notebook must be stands in rules.py.
"""

import argparse
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from rules import SETUP, WIDGET, cell_id, check, check_package, mirrored

FOLDER = Path(__file__).resolve().parent
KEPT = ("mirror", "nbgrader", "slideshow", "tags")  # the cell metadata that is stored
COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class BuildError(RuntimeError):
    """A notebook that could not be built; its stored file is as it was."""


def refresh(notebook) -> None:
    """Write the set-up cell and the mirror cells anew."""
    for cell in notebook.cells:
        if "setup" in cell.metadata.get("tags", []):
            cell.source = SETUP
        if "mirror" in cell.metadata:
            cell.source = mirrored(cell.metadata["mirror"])


def execute(notebook, path: Path) -> None:
    """Execute all cells in a fresh kernel of this interpreter, cache cold; BuildError on stderr or an exception."""

    def verify(cell, cell_index, execute_reply):
        for output in cell.outputs:
            if output.output_type == "error" or output.get("name") == "stderr":
                fault = "\n".join(output.get("traceback", [output.get("text", "")]))
                raise BuildError(f"{COLOURS.sub('', fault)}\n\nin the cell\n\n{cell.source}")

    manager = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=KernelSpecManager(kernel_dirs=[]))
    client = NotebookClient(notebook, km=manager, timeout=600, record_timing=False, on_cell_executed=verify)
    client.extra_arguments = ["--log-level=ERROR"]
    with tempfile.TemporaryDirectory() as cold:
        fixed = {"COURSE_CACHE": f"{cold}/cache", "IPYTHONDIR": cold, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
        environment = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"} | fixed
        try:
            client.execute(cwd=str(path.parent), env=environment, cleanup_kc=True)
        except (BuildError, CellTimeoutError, DeadKernelError) as error:
            raise BuildError(f"{path.name}, code cell [{client.code_cells_executed}]: {error}") from None


def terminal(text: str) -> str:
    """Return what a terminal shows in the end: what follows a carriage return overwrites its line."""
    lines = text.split("\n")
    for k, line in enumerate(lines):
        if "\r" in line:
            shown = ""
            for part in line.split("\r"):
                shown = part + shown[len(part) :]
            lines[k] = shown.rstrip()
    return "\n".join(lines)


def tidy(outputs: list) -> list:
    """Return the outputs without widget ids and progress bars, neighbouring streams merged, empty outputs dropped."""
    merged = []
    for output in outputs:
        output.get("data", {}).pop(WIDGET + "-view+json", None)
        if merged and output.output_type == merged[-1].output_type == "stream" and output.name == merged[-1].name:
            merged[-1].text += output.text
        else:
            merged.append(output)
    for output in merged:
        if output.output_type == "stream":
            output.text = terminal(output.text)
    return [output for output in merged if output.get("text", output.get("data", True))]


def store(notebook, path: Path) -> None:
    """Write the notebook, without anything that differs from run to run, to a temporary name, then rename it."""
    for k, cell in enumerate(notebook.cells):
        cell["id"] = cell_id(k)
        cell.metadata = {name: cell.metadata[name] for name in KEPT if name in cell.metadata}
        if cell.cell_type == "code":
            cell.outputs = tidy(cell.outputs)
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    notebook.metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    notebook.nbformat_minor = 5
    nbformat.validate(notebook)
    temporary = path.with_name(f".{path.name}.tmp")
    nbformat.write(notebook, temporary)
    temporary.replace(path)


def build(path: Path) -> None:
    """Refresh, execute and store one notebook, and print its seconds; BuildError leaves the file untouched."""
    start = time.perf_counter()
    notebook = nbformat.read(path, as_version=4)
    try:
        refresh(notebook)
    except ValueError as error:
        raise BuildError(f"{path.name}: {error}") from None
    execute(notebook, path)
    store(notebook, path)
    print(f"{path.name}: {time.perf_counter() - start:.1f} s, {path.stat().st_size / 1000:.0f} kB", flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Build and check the notebooks named; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("numbers", nargs="*", metavar="NN")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    paths = {path.name[:2]: path for path in sorted(FOLDER.glob("[0-9][0-9]_*.ipynb"))}
    if unknown := sorted(set(options.numbers) - set(paths)):
        parser.error(f"no notebook {unknown} in {FOLDER}; there are {list(paths)}")
    paths = [paths[number] for number in options.numbers or paths]
    try:
        for path in [] if options.check else paths:
            build(path)
    except BuildError as error:
        sys.exit(str(error))
    problems = [problem for path in paths for problem in check(path)] + check_package()
    print("\n".join(problems) or f"{len(paths)} notebooks: no problem")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
