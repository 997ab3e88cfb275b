"""Studies: comparisons over many seeds, parallel and resumable, stored as tidy tables that notebooks and tests read."""

from course_utils.studies.engine import paired_interval, read, run, summary

__all__ = ["paired_interval", "read", "run", "summary"]
