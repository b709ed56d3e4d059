"""Write docs/settings.md from kb/settings.py: `python -m docs.build_settings`."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from kb.settings import CONFIG_VARIABLE, ENV_PREFIX, Settings

TARGET = Path(__file__).with_name("settings.md")
_KINDS = {str: "text", int: "whole number", float: "number", bool: "true or false", Path: "path"}
_BOUNDS = {
    "ge": "at least",
    "gt": "more than",
    "le": "at most",
    "lt": "less than",
    "min_length": "length at least",
}
_INTRO = f"""\
# Settings

<!-- Written by `python -m docs.build_settings` from kb/settings.py; change the settings there. -->

Every setting is an environment variable `{ENV_PREFIX}…`, or a key of the TOML file that `{CONFIG_VARIABLE}`
names: the same name in lower case without `{ENV_PREFIX}`, at top level. The environment wins over the file.
A wrong value or an unknown name, in either place, stops the process and is named in its message.

```toml
# {CONFIG_VARIABLE}=/etc/kb/kb.toml
data_dir = "/var/lib/kb"
api_port = 8080
generator_url = "http://127.0.0.1:30000/v1"
```
"""


def render() -> str:
    """Return the page: a table of name, values, default and meaning for each group of settings."""
    parts = [_INTRO]
    for group, names in _groups():
        parts.append(f"## {group.capitalize()}\n")
        rows = [_row(name, Settings.model_fields[name]) for name in names]
        parts.append(
            "\n".join(["| variable | values | default | meaning |", "| --- | --- | --- | --- |", *rows])
            + "\n"
        )
    return "\n".join(parts)


def _groups() -> Iterator[tuple[str, list[str]]]:
    """Yield the fields under the `# -- group` comment that they stand under in the source."""
    group, names = "general", list[str]()
    for line in inspect.getsource(Settings).splitlines():
        heading = re.match(r"    # -- (.+)", line)
        field = re.match(r"    (\w+):", line)
        if heading:
            if names:
                yield group, names
            group, names = heading.group(1), []
        elif field and field.group(1) in Settings.model_fields:
            names.append(field.group(1))
    if names:
        yield group, names


def _row(name: str, field: FieldInfo) -> str:
    default = "unset" if field.default is None else f"`{_plain(field.default)}`"
    cells = [f"`{ENV_PREFIX}{name.upper()}`", _values(field), default, field.description or ""]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _values(field: FieldInfo) -> str:
    bounds = [
        f"{words} {getattr(rule, name)}"
        for rule in field.metadata
        for name, words in _BOUNDS.items()
        if getattr(rule, name, None) is not None
    ]
    return ", ".join([_kind(field.annotation), *bounds])


def _kind(annotation: Any) -> str:
    origin = get_origin(annotation)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in get_args(annotation))
    if origin in (Union, types.UnionType):
        return _kind(next(part for part in get_args(annotation) if part is not type(None)))
    return _KINDS[annotation]


if __name__ == "__main__":
    TARGET.write_text(render(), "utf-8")
