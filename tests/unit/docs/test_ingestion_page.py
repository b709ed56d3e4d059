"""docs/ingestion.md and its translation tell of every code that a document can end with."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest.warnings import _BY_SOURCE, _SENTENCES
from kb.errors import DocumentError, KbError, PasswordsUnavailableError

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "docs" / name for name in ("ingestion.md", "ingestion.zh-CN.md")]
CODED = re.compile(r"([a-z]+(?:_[a-z]+)+): ")


def list_error_codes() -> set[str]:
    """Return the codes of documents' errors, those of the catalog and the pipeline included."""
    kinds: list[type[KbError]] = [DocumentError, *DocumentError.__subclasses__(), PasswordsUnavailableError]
    return {kind.code for kind in kinds} | {"attempts_exhausted", "internal_error"}


def list_warning_codes() -> set[str]:
    """Return the codes that parsers put before a sentence, and those that summaries know."""
    found = {match[1] for text in iter_strings(ROOT / "ingest") if (match := CODED.match(text))}
    return found | _SENTENCES.keys() | set(_BY_SOURCE.values()) | {"parser_warning"}


def iter_strings(folder: Path) -> Iterator[str]:
    """Yield the string constants of the code, with those of f-strings."""
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_code_has_a_row(page: Path) -> None:
    rows = [line for line in page.read_text("utf-8").splitlines() if line.startswith("| `")]
    told = {code for row in rows for code in re.findall(r"`(\w+)`", row.split(" | ")[0])}

    assert len(list_warning_codes()) > 8
    assert (list_error_codes() | list_warning_codes()) - told == set()


def test_both_languages_tell_the_same() -> None:
    first, second = (re.findall(r"`[^`\n]+`", page.read_text("utf-8")) for page in PAGES)

    names = re.compile(r"`\w+`")
    assert {word for word in first if names.fullmatch(word)} == {
        word for word in second if names.fullmatch(word)
    }
    assert [line for line in PAGES[0].read_text("utf-8").splitlines() if line.startswith("## ")] != []
    counts = [page.read_text("utf-8").count("\n## ") for page in PAGES]
    assert counts[0] == counts[1]
