"""What all commands share: the address of the API, `--json`, and how errors become exit codes."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kb.client import KbClient
    from kb.errors import KbError
    from kb.settings import Settings


class ExitCode(IntEnum):
    """Exit codes of every command; a refused answer is an answer, so it is 0."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_FOUND = 4
    CONFIGURATION = 5
    INTERRUPTED = 130


EXIT_CODE_HELP = """Exit codes:

- `0` done; a refused answer is done, too
- `1` something failed, such as one of several documents
- `2` wrong usage
- `3` the service does not answer
- `4` no such document, collection, page, job or code
- `5` wrong settings or installation
- `130` interrupted with Ctrl-C
"""


@dataclass(slots=True)
class Session:
    """Options that stand before or in any command."""

    url: str | None = None
    json: bool = False

    @contextmanager
    def open_client(self) -> Iterator[KbClient]:
        """Yield a client of the API that the options or the settings name."""
        from kb.client import KbClient
        from kb.settings import load_settings

        settings = load_settings()
        with KbClient(self.url or settings.resolved_api_url, api_key=settings.api_key) as client:
            yield client

    def load_settings(self) -> Settings:
        """Return the effective settings."""
        from kb.settings import load_settings

        return load_settings()


def get_session(ctx: typer.Context) -> Session:
    """Return the session of this run of the command."""
    session: Session = ctx.ensure_object(Session)
    return session


def _remember_json(ctx: typer.Context, value: bool) -> bool:
    if value:
        get_session(ctx).json = True
    return value


JsonOption = Annotated[
    bool,
    typer.Option(
        "--json", callback=_remember_json, is_eager=True, help="Print one JSON document for scripts."
    ),
]
CollectionOption = Annotated[
    str, typer.Option("--collection", "-c", metavar="NAME", help="Collection to work on.")
]


class KbGroup(TyperGroup):
    """A group of commands that reports errors raised on purpose in one line, with the next step."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; `KbError` and Ctrl-C end it with their exit code."""
        from kb.errors import KbError

        try:
            return super().invoke(ctx)
        except KbError as error:
            report_error(error, as_json=get_session(ctx).json)
            raise typer.Exit(find_exit_code(error)) from error
        except KeyboardInterrupt as error:
            raise typer.Exit(ExitCode.INTERRUPTED) from error


def find_exit_code(error: KbError) -> ExitCode:
    """Return the exit code that says who has to act on the error."""
    from kb.client import ClientError, ServiceUnreachableError
    from kb.errors import ConfigurationError

    if isinstance(error, ServiceUnreachableError):
        return ExitCode.UNREACHABLE
    if isinstance(error, ConfigurationError):
        return ExitCode.CONFIGURATION
    if isinstance(error, ClientError):
        if error.status == 404 and (error.code.endswith("_not_found") or error.code == "code_unknown"):
            return ExitCode.NOT_FOUND
        if error.code == "invalid_request":
            return ExitCode.USAGE
        if error.status in (401, 403):
            return ExitCode.CONFIGURATION
    return ExitCode.FAILED


def report_error(error: KbError, *, as_json: bool) -> None:
    """Print an error: as JSON on standard output, or as one line and the next step on standard error."""
    from kb.cli.output import get_error_console, print_json
    from kb.schemas import ErrorDetail, ErrorOut

    if as_json:
        detail = ErrorDetail(
            code=error.code,
            message=error.message,
            next_step=error.next_step,
            request_id=getattr(error, "request_id", ""),
            suggestions=list(error.suggestions),
        )
        print_json(ErrorOut(error=detail))
        return
    console = get_error_console()
    console.print(f"[bold red]Error[/] {_escaped(error.message)}", highlight=False, soft_wrap=True)
    for line in getattr(error, "tail", ()):
        console.print(f"  [dim]│[/] {_escaped(line)}", highlight=False, soft_wrap=True)
    if error.next_step:
        console.print(f"[bold]Next[/]  {_escaped(error.next_step)}", highlight=False, soft_wrap=True)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
