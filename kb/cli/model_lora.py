"""`kb model lora …`: adapters of a running runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kb.cli.session import JsonOption, get_session

app = typer.Typer(no_args_is_help=True, help="List, load and unload LoRA adapters of the running runtime.")

_BASE_HELP = "Folder of the model that the runtime serves, to check the adapter against."


@app.command("list")
def list_adapters(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List the adapters that can be named as `MODEL+lora:NAME`."""
    from kb.cli.output import print_json, print_rows
    from kb.runtime.client import RuntimeClient

    with RuntimeClient(_find_url(ctx)) as client:
        found = [entry for entry in client.list_models() if entry.get("parent")]
    if as_json:
        print_json({"adapters": [{"name": entry["id"], "path": entry.get("root", "")} for entry in found]})
        return
    print_rows(
        ("adapter", "folder"),
        [(entry["id"], str(entry.get("root", ""))) for entry in found],
        empty="No adapter is loaded.",
    )


@app.command("load")
def load(
    ctx: typer.Context,
    adapter: Annotated[str, typer.Argument(metavar="NAME=DIR", help="Name and folder of the adapter.")],
    base: Annotated[
        Path, typer.Option("--model", metavar="DIR", exists=True, file_okay=False, help=_BASE_HELP)
    ],
) -> None:
    """Load an adapter while the runtime goes on; it must have been started with `--lora`."""
    from kb.runtime.checkpoint import read_config
    from kb.runtime.client import RuntimeClient
    from kb.runtime.lora import parse_adapter, read_adapter
    from kb.runtime.shape import read_shape

    read = read_adapter(*parse_adapter(adapter), base=read_shape(read_config(base), weight_bytes=0))
    with RuntimeClient(_find_url(ctx), timeout_s=120) as client:
        client.load_adapter(read.name, str(read.path.absolute()))


@app.command("unload")
def unload(ctx: typer.Context, name: Annotated[str, typer.Argument(help="Name of the adapter.")]) -> None:
    """Unload an adapter; requests that use it are finished first."""
    from kb.runtime.client import RuntimeClient

    with RuntimeClient(_find_url(ctx), timeout_s=120) as client:
        client.unload_adapter(name)


def _find_url(ctx: typer.Context) -> str:
    from kb.errors import ConfigurationError

    settings = get_session(ctx).load_settings()
    if settings.generator_url is None:
        raise ConfigurationError(
            "KB_GENERATOR_URL is not set", next_step="Set it to the address that `kb model serve` names."
        )
    return settings.generator_url
