"""`kb models …`."""

import typer

app = typer.Typer(
    rich_markup_mode="markdown", no_args_is_help=True, help="List, fetch and verify the starter models."
)
