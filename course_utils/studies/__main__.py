"""Make or complete the stored table of a study: python -m course_utils.studies show_and_tell [--seeds 5] [--jobs -1].

`python -m course_utils.studies readme` writes the summary of every stored table into the README.
"""

import argparse
import importlib
import re
from pathlib import Path

from course_utils.studies import read, run, summary

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "notebooks" / "studies"
STUDIES = ("show_and_tell", "decoding", "attention", "hard_attention", "hard_scenes")
SECTION = re.compile(r"(<!-- results: .*? -->\n).*?(<!-- end of results -->)", re.DOTALL)


def results() -> str:
    """Return the summary of every stored table as markdown: mean and standard deviation over seeds."""
    parts = []
    for path in sorted(FOLDER.glob("*.csv")):
        metrics = importlib.import_module(f"course_utils.studies.{path.stem}").METRICS
        table = summary(read(path), metrics)
        lines = [table[0].keys(), ["---"] * len(table[0]), *(row.values() for row in table)]
        body = "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
        parts.append(f"**{path.stem}**\n\n{body}\n".replace("+-", "±"))
    return "\n".join(parts)


def write_readme() -> None:
    """Write the results between their two marks in the README."""
    path = ROOT / "README.md"
    text, found = SECTION.subn(lambda marks: marks[1] + "\n" + results() + "\n" + marks[2], path.read_text("utf-8"))
    if found != 1:
        raise ValueError(f"{path} has {found} results sections; expected one, between the marks {SECTION.pattern}")
    path.write_text(text, "utf-8")


def main() -> None:
    """Run one study by name and print its summary, or write the README's results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", choices=[*STUDIES, "readme"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=-1)
    parser.add_argument("--backend", default="loky")
    chosen = parser.parse_args()
    if chosen.study == "readme":
        return write_readme()
    study = importlib.import_module(f"course_utils.studies.{chosen.study}")
    path = FOLDER / f"{chosen.study}.csv"
    rows = run(study.job, study.VARIANTS, range(chosen.seeds), path, chosen.jobs, chosen.backend)
    for row in summary(rows, study.METRICS):
        print(row)


if __name__ == "__main__":
    main()
