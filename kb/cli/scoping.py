"""Options that limit a search to some documents."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kb.schemas import ScopeIn

_DATES = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"]

DocumentsOption = Annotated[
    list[str] | None,
    typer.Option("--document", metavar="NAME", help="Only this document, by name or id; may be repeated."),
]
TagsOption = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="TAG", help="Only documents with this tag; repeated: with all of them."),
]
LanguageOption = Annotated[
    Literal["zh", "en"] | None, typer.Option("--language", help="Only passages in this language.")
]
FromOption = Annotated[
    datetime | None,
    typer.Option("--from", formats=_DATES, metavar="DATE", help="Only documents uploaded since then (UTC)."),
]
BeforeOption = Annotated[
    datetime | None,
    typer.Option("--before", formats=_DATES, metavar="DATE", help="Only documents uploaded before (UTC)."),
]


def build_scope(
    *,
    documents: Sequence[str] | None,
    tags: Sequence[str] | None,
    language: Literal["zh", "en"] | None,
    since: datetime | None,
    before: datetime | None,
) -> ScopeIn:
    """Return what the options say; times are UTC."""
    from kb.schemas import ScopeIn

    return ScopeIn(
        documents=list(documents or ()),
        tags=list(tags or ()),
        language=language,
        uploaded_from=None if since is None else since.replace(tzinfo=UTC),
        uploaded_before=None if before is None else before.replace(tzinfo=UTC),
    )
