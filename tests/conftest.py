"""Makes plain `pytest` run everything: unit tests, then the notebooks through nbval, then the browser tests."""

import os
import shutil
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported, here and in every kernel
os.environ.setdefault("PYTHONHASHSEED", "0")


def pytest_configure(config):
    """Run the notebooks with this environment's kernel, lax, 120 s a cell; start from an empty cache."""
    option = config.option
    if hasattr(option, "nbval_lax"):
        option.nbval_lax = option.nbval_lax or not option.nbval
        option.nbval_current_env = option.nbval_current_env or not option.nbval_kernel_name
        if option.nbval_cell_timeout == 2000:  # nbval's default
            option.nbval_cell_timeout = 120.0
    # One cache for the session: what nbval trains, the browser tests find.
    os.environ["COURSE_CACHE"] = config.course_cache = tempfile.mkdtemp(prefix="course-cache-")


def pytest_unconfigure(config):
    """Remove the session's cache."""
    shutil.rmtree(config.course_cache, ignore_errors=True)


def pytest_collection_modifyitems(items):
    """Order: unit tests, notebooks, browser tests; the order within each stays."""
    items.sort(key=lambda item: (item.get_closest_marker("browser") is not None, item.path.suffix == ".ipynb"))
