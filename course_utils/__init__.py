"""Shared from-scratch components of the course "Image captioning from scratch"."""

__version__ = "0.1.0"
