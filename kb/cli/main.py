"""The `kb` command: puts the commands together."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from kb.cli import (
    ask,
    calibrate,
    collections,
    demo,
    doctor,
    documents,
    evaluate,
    explain,
    fault,
    ingest,
    jobs,
    keys,
    model,
    models,
    replay,
    search,
    status,
    up,
)
from kb.cli.session import EXIT_CODE_HELP, KbGroup, get_session

app = typer.Typer(
    name="kb",
    cls=KbGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Offline knowledge base: manuals in, cited answers out.",
    epilog=EXIT_CODE_HELP,
)


def _print_version(value: bool) -> None:
    if value:
        from kb.cli.output import get_console

        get_console().print(f"kb {status.read_version()}", highlight=False)
        raise typer.Exit


@app.callback()
def _root(
    ctx: typer.Context,
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="URL", help="Address of the service; default is KB_API_URL."),
    ] = None,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    get_session(ctx).url = url


_SERVICE, _CONTENT, _CARE = "The service", "Documents and answers", "Settings and upkeep"

app.command("up", rich_help_panel=_SERVICE)(up.up)
app.command("demo", rich_help_panel=_SERVICE)(demo.demo)
app.command("status", rich_help_panel=_SERVICE)(status.status)
app.command("ingest", rich_help_panel=_CONTENT)(ingest.ingest)
app.command("ask", rich_help_panel=_CONTENT)(ask.ask)
app.command("replay", rich_help_panel=_CONTENT)(replay.replay)
app.command("fault", rich_help_panel=_CONTENT)(fault.fault)
app.command("search", rich_help_panel=_CONTENT)(search.search)
app.add_typer(documents.app, name="documents", rich_help_panel=_CONTENT)
app.add_typer(collections.app, name="collections", rich_help_panel=_CONTENT)
app.add_typer(jobs.app, name="jobs", rich_help_panel=_CONTENT)
app.add_typer(model.app, name="model", rich_help_panel=_CARE)
app.add_typer(models.app, name="models", rich_help_panel=_CARE)
app.add_typer(keys.app, name="keys", rich_help_panel=_CARE)
app.command("audit", rich_help_panel=_CARE)(keys.audit)
app.command("eval", rich_help_panel=_CARE)(evaluate.evaluate)
app.command("calibrate", rich_help_panel=_CARE)(calibrate.calibrate)
app.command("explain", rich_help_panel=_CARE)(explain.explain)
app.command("doctor", rich_help_panel=_CARE)(doctor.doctor)
app.command("settings", rich_help_panel=_CARE)(status.settings)
app.command("version", rich_help_panel=_CARE)(status.version)


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:  # a terminal in the C locale must not break on Chinese text
            reconfigure(encoding="utf-8", errors="replace")
    app(prog_name="kb")


if __name__ == "__main__":
    main()
