"""Reads the text files that ship inside the package."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files


@cache
def read_prompt(name: str) -> str:
    """Return the text of `kb/prompts/<name>.txt` without its last newline."""
    return (files("kb") / "prompts" / f"{name}.txt").read_text(encoding="utf-8").removesuffix("\n")


def read_lines(name: str) -> list[str]:
    """Return the non-empty lines of `kb/prompts/<name>.txt`."""
    return [line for line in read_prompt(name).splitlines() if line.strip()]


@cache
def read_names(name: str) -> dict[str, dict[str, list[str]]]:
    """Return the tables of `kb/prompts/<name>.toml`: lists of words by table and key."""
    return tomllib.loads((files("kb") / "prompts" / f"{name}.toml").read_text(encoding="utf-8"))
