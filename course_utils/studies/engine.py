"""The engine of all studies: (variant x seed) jobs through joblib, one row a job, resumed from the rows done."""

import csv
import itertools
import os
import platform
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path

import joblib
import torch
from scipy import stats

from course_utils import __version__

KEYS = ("variant", "seed")


def versions() -> str:
    """Return what the results depend on beside the code: the versions of the course, torch and Python."""
    return f"course {__version__}, torch {torch.__version__}, Python {platform.python_version()}"


def run(job: Callable, variants: Iterable[str], seeds: Iterable[int], path: str | Path | None = None,
        n_jobs: int = -1, backend: str = "loky") -> list[dict]:
    """Return one row (dict) for every variant and seed, in that order: variant, seed, the metrics of job, versions.

    job(variant, seed) -> dict of numbers, run on one thread; n_jobs and backend go to joblib (all cores by default;
    "dask" or "ray" once that backend is registered). With path, a csv file, each row is stored as soon as it is done,
    and rows that the file already holds for these versions are not run again. An error in one job stops the study
    with its variant and seed; what was done stays stored.
    """
    wanted = list(itertools.product(variants, seeds))
    if len(set(wanted)) < len(wanted):
        raise ValueError("variants or seeds hold one value twice; expected each once")
    rows = {} if path is None or not Path(path).exists() else {(r["variant"], r["seed"]): r for r in read(path)}
    missing = [key for key in wanted if rows.get(key, {}).get("versions") != versions()]
    missing.sort(key=lambda key: key[1])  # seed by seed: a process keeps the scenes and grids of the last seed
    with joblib.parallel_config(backend=backend, n_jobs=n_jobs, inner_max_num_threads=1 if backend == "loky" else None):
        parallel = joblib.Parallel(return_as="generator_unordered")
        for row in parallel(joblib.delayed(_row)(job, *key) for key in missing):
            rows[row["variant"], row["seed"]] = row
            if path is not None:
                _write(path, [rows[key] for key in sorted(rows, key=lambda k: _rank(k, wanted))])
    return [rows[key] for key in wanted]


def _rank(key: tuple, wanted: list[tuple]) -> tuple:
    return (wanted.index(key), "", 0) if key in wanted else (len(wanted), *key)


def _row(job: Callable, variant: str, seed: int) -> dict:
    torch.set_num_threads(1)
    try:
        metrics = job(variant, seed)
    except Exception as error:
        raise RuntimeError(f"variant {variant!r}, seed {seed}: {type(error).__name__}: {error}") from error
    return {"variant": variant, "seed": seed, **metrics, "versions": versions()}


def _write(path: str | Path, rows: list[dict]) -> None:
    columns = list(dict.fromkeys(name for row in rows for name in row if name != "versions")) + ["versions"]
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".writing")
    with open(unfinished, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: f"{value:.6g}" if isinstance(value, float) else value for name, value in row.items()}
                         for row in rows)
    os.replace(unfinished, path)


def read(path: str | Path) -> list[dict]:
    """Return the rows of a stored table (list of dict): seed as int, metrics as float, variant and versions as str."""
    if not Path(path).exists():
        raise FileNotFoundError(f"no table at {path}; make it with: python -m course_utils.studies {Path(path).stem}")
    with open(path, newline="", encoding="utf-8") as file:
        rows = [dict(row) for row in csv.DictReader(file)]
    absent = [name for name in (*KEYS, "versions") if not rows or name not in rows[0]]
    if absent:
        raise ValueError(f"{path} has no column or row for {', '.join(absent)}; expected a table that `run` wrote")
    kinds = {"variant": str, "versions": str, "seed": int}
    return [{name: kinds.get(name, float)(value) for name, value in row.items()} for row in rows]


def summary(rows: list[dict], metrics: Iterable[str]) -> list[dict]:
    """Return one row a variant, in the table's order: variant, seeds, and "mean +- standard deviation" a metric."""
    table = []
    for variant in dict.fromkeys(row["variant"] for row in rows):
        mine = [row for row in rows if row["variant"] == variant]
        cells = {}
        for metric in metrics:
            values = [row[metric] for row in mine]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            cells[metric] = f"{statistics.mean(values):.3f} +- {spread:.3f}"
        table.append({"variant": variant, "seeds": len(mine), **cells})
    return table


def paired_interval(rows: list[dict], metric: str, first: str, second: str,
                    confidence: float = 0.95) -> tuple[float, float, float]:
    """Return the mean of first - second over the seeds that both share, and its confidence interval (low, high).

    Student's t on the differences of the pairs. ValueError for fewer than two common seeds or an unknown variant.
    """
    values = {variant: {row["seed"]: row[metric] for row in rows if row["variant"] == variant}
              for variant in (first, second)}
    seeds = sorted(values[first].keys() & values[second].keys())
    if len(seeds) < 2:
        raise ValueError(f"{first!r} and {second!r} share {len(seeds)} seeds; expected at least 2 rows of each: "
                         f"the table holds {sorted({row['variant'] for row in rows})}")
    differences = [values[first][seed] - values[second][seed] for seed in seeds]
    mean = statistics.mean(differences)
    half = stats.t.ppf((1 + confidence) / 2, len(seeds) - 1) * statistics.stdev(differences) / len(seeds) ** 0.5
    return mean, mean - half, mean + half
