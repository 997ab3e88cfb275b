"""JupyterLab and Chromium open every notebook: Run All ends without an error, and the keyboard moves every explorer."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import build
import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

pytestmark = pytest.mark.browser

NOTEBOOKS = sorted(build.FOLDER.glob("[0-9][0-9]_*.ipynb"))
TOKEN = "course"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking".split()
FLAGS += ["--disable-component-update", "--disable-sync"]
SETTINGS = {
    "notebook-extension/tracker": {"windowingMode": "none"},  # keep the cells outside the window in the page
    "docmanager-extension/plugin": {"autosave": False},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}
# An exception's traceback and text on stderr have the same type in JupyterLab.
ERRORS = '.jp-OutputArea-output[data-mime-type="application/vnd.jupyter.stderr"]'
# The status bar's "Python 3 | Idle"; the notebook's own indicator says idle also before it has a kernel.
CONNECTED = "() => [...document.querySelectorAll('.jp-StatusBar-TextItem')].some(e => / [|] Idle$/.test(e.textContent))"
# Every code cell has run, or one has failed (JupyterLab then runs no further cell).
DONE = f"""() => {{
  const prompts = [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')].map(e => e.textContent);
  const failed = document.querySelector('{ERRORS}');
  const idle = document.querySelector('.jp-Notebook-ExecutionIndicator[data-status="idle"]');
  return idle && !prompts.some(p => p.includes('*')) && (failed || prompts.every(p => /\\d/.test(p)));
}}"""
CONTROLS = ".noUi-handle, select, input:not([disabled]), textarea, button:not([disabled])"


def find_chromium():
    """Return the path of the system's Chromium, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextlib.contextmanager
def jupyterlab(folder, home):
    """Serve a folder of notebooks, with settings of its own below home; give the address."""
    for name, values in SETTINGS.items():
        file = home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    places = "JUPYTER_CONFIG_DIR JUPYTER_DATA_DIR JUPYTER_RUNTIME_DIR JUPYTERLAB_WORKSPACES_DIR IPYTHONDIR"
    environment = os.environ | {name: str(home / name.lower()) for name in places.split()}
    environment["JUPYTERLAB_SETTINGS_DIR"] = str(home / "settings")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}", "--allow-root"]
    command += ["--ServerApp.port_retries=0", f"--IdentityProvider.token={TOKEN}"]
    log = home / "jupyterlab.log"
    with log.open("w") as output:
        server = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        base = f"http://127.0.0.1:{port}"
        for _ in range(600):
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                urllib.request.urlopen(f"{base}/api", timeout=5).close()
                break
            assert server.poll() is None, log.read_text()
            time.sleep(0.1)
        yield base
    finally:
        server.send_signal(signal.SIGTERM)  # ends the kernels too
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()


def copy_unrun(source, target):
    """Copy a notebook without its outputs, so that what the page shows was made in the page."""
    notebook = nbformat.read(source, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    nbformat.write(notebook, target)


def run_all(page, base, name, timeout=400):
    """Open a notebook, run all of its cells and wait for the end."""
    page.goto(f"{base}/lab/tree/{name}?token={TOKEN}&reset", wait_until="domcontentloaded", timeout=60_000)
    page.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=60_000)
    page.wait_for_function(CONNECTED, timeout=60_000)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_text("Run All Cells", exact=True).click()
    page.wait_for_function(DONE, timeout=timeout * 1000)
    page.wait_for_timeout(1000)  # the widgets' own drawing


def keys(control):
    """Return the key presses that may change a control, one list a try.

    JupyterLab keeps the arrow keys from lists and radio buttons (it moves to the next cell): End and Home pass, and so
    does Space, which opens a list and presses a button.
    """
    kind = control.evaluate("e => e.classList.contains('noUi-handle') ? 'slider' : e.type")
    if kind == "slider":
        return [["ArrowRight"], ["ArrowLeft"]]
    if kind == "number":
        return [["ArrowUp"], ["ArrowDown"]]
    if kind in ("select-one", "select-multiple"):
        return [["End"], ["Home"]]
    if kind in ("checkbox", "radio", "button", "submit"):
        return [["Space"]]
    return [["End", "Backspace", "Enter"]]  # text


def move(page, explorer, seconds=3):
    """Return the control of an explorer that changed its view by keyboard, or None if no control did."""
    view = explorer.locator(".course-view").first
    before = view.inner_html()
    for control in explorer.locator(CONTROLS).all():
        for presses in keys(control):
            control.scroll_into_view_if_needed()
            control.focus()
            for key in presses:
                page.keyboard.press(key)
            for _ in range(seconds * 10):
                page.wait_for_timeout(100)
                if view.inner_html() != before:
                    return control
    return None


def faults(page, shots, name):
    """Return what is wrong with a notebook that has run; move every explorer and keep a picture of it in shots."""
    found = [f"error: {text}" for text in page.locator(ERRORS).all_text_contents()]
    for k, explorer in enumerate(page.locator(".jp-OutputArea-output .course-explorer").all()):
        if explorer.locator(".course-view [role=alert]").count():
            found.append(f"explorer {k} opens with an error: {explorer.inner_text()}")
        moved = move(page, explorer)
        explorer.screenshot(path=shots / f"{name}_{k}.png")
        if moved is None:
            found.append(f"explorer {k}: no control changes the view by keyboard: {explorer.inner_text()}")
        elif moved.get_attribute("type") != "text" and explorer.locator(".course-view [role=alert]").count():
            found.append(f"explorer {k} shows an error when it is moved: {explorer.inner_text()}")
    return found


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install -r tests/requirements.txt")
    path = find_chromium()
    if path is None:
        pytest.skip(f"no Chromium on the PATH (looked for {', '.join(NAMES)}): apt-get install chromium")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=path, headless=True, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def lab(browser, tmp_path_factory):
    """JupyterLab on a copy of the notebooks, which the tests cannot change."""
    home = tmp_path_factory.mktemp("lab")
    folder = shutil.copytree(build.FOLDER, home / "notebooks", ignore=shutil.ignore_patterns("*.ipynb", ".*"))
    for path in NOTEBOOKS:
        copy_unrun(path, folder / path.name)
    with jupyterlab(folder, home) as base:
        yield base, folder


@pytest.fixture
def page(browser, lab):
    """A fresh page; afterwards the kernel it used is ended."""
    page = browser.new_page(viewport={"width": 1200, "height": 1600})
    yield page
    page.close()
    headers = {"Authorization": f"token {TOKEN}"}
    with urllib.request.urlopen(urllib.request.Request(f"{lab[0]}/api/sessions", headers=headers)) as answer:
        sessions = json.load(answer)
    for session in sessions:
        request = urllib.request.Request(f"{lab[0]}/api/sessions/{session['id']}", headers=headers, method="DELETE")
        urllib.request.urlopen(request).close()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_in_a_browser(path, page, lab, tmp_path):
    run_all(page, lab[0], path.name)
    found = faults(page, tmp_path, path.stem)
    assert found == [], f"pictures in {tmp_path}"


PROBE = """\
import ipywidgets as w
def explorer(control, draw):
    view = w.HTML(draw(control))
    view.add_class("course-view")
    control.observe(lambda change: setattr(view, "value", draw(control)), "value")
    box = w.VBox([control, view])
    box.add_class("course-explorer")
    return box
show = lambda control: f"<b>{control.value}</b>"
"""


def test_the_browser_test_can_fail(page, lab, tmp_path):
    controls = {
        "slider": "explorer(w.IntSlider(value=3, max=3), show)",
        "dropdown": "explorer(w.Dropdown(options=['a', 'b']), show)",
        "text": "explorer(w.Text('a red circle'), show)",
        "toggle": "explorer(w.ToggleButton(), show)",
        "checkbox": "explorer(w.Checkbox(), show)",
        "radio": "explorer(w.RadioButtons(options=['a', 'b']), show)",
        "dead": "explorer(w.IntSlider(description='dead'), lambda control: 'always')",
        "broken": "explorer(w.IntSlider(description='broken'), lambda c: '<p role=alert>no</p>' * c.value)",
    }
    sources = [PROBE, *controls.values(), "import time; time.sleep(1)", "1 / 0", "'not run'"]
    notebook = new_notebook(cells=[new_code_cell(source) for source in sources])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(notebook, lab[1] / "probe.ipynb")
    run_all(page, lab[0], "probe.ipynb")
    error, dead, broken = faults(page, tmp_path, "probe")
    assert "ZeroDivisionError" in error
    assert re.match(r"explorer 6: no control changes the view by keyboard: dead", dead)
    assert re.match(r"explorer 7 shows an error when it is moved: broken", broken)
