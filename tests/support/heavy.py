"""Imports much: what a nursery preloads."""

import ssl

import pydantic

__all__ = ["pydantic", "ssl"]
