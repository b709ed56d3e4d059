"""`kb model …`: a generator's folder on the user's own card."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kb.cli import model_lora, model_serve
from kb.cli.model_options import (
    ConcurrencyOption,
    ContextOption,
    GpuOption,
    GpusOption,
    KvOption,
    ModelArgument,
    ShareOption,
    VramOption,
    find_plan,
)
from kb.cli.session import ExitCode, JsonOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from kb.runtime.checks import Check
    from kb.runtime.plan import MemoryPlan
    from kb.runtime.verify import Report

app = typer.Typer(
    rich_markup_mode="markdown",
    no_args_is_help=True,
    help="Check, plan and run a model folder on this machine's NVIDIA card.",
)
app.command("serve")(model_serve.serve)
app.add_typer(model_lora.app, name="lora")

_BAR_CELLS = 64


@app.command("plan")
def plan(
    model: ModelArgument,
    *,
    gpu: GpuOption = None,
    vram: VramOption = None,
    context: ContextOption = None,
    concurrency: ConcurrencyOption = None,
    kv_cache: KvOption = "auto",
    gpus: GpusOption = 1,
    share: ShareOption = "0",
    as_json: JsonOption = False,
) -> None:
    """Show where the card's memory goes, what fits, and the options that `kb model serve` uses.

    The exit code is 1 if it doesn't fit. Needs neither a card nor the runtime.
    """
    from kb.cli.output import print_json

    made = find_plan(
        model,
        gpu=gpu,
        vram=vram,
        context=context,
        concurrency=concurrency,
        kv_cache=kv_cache,
        gpus=gpus,
        share=share,
    )
    if as_json:
        print_json(describe_plan(made))
    else:
        print_plan(made)
    if not made.fits:
        raise typer.Exit(ExitCode.FAILED)


@app.command("verify")
def verify(
    model: ModelArgument,
    *,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Compare with this manifest of SHA-256.",
        ),
    ] = None,
    manifest: Annotated[
        Path | None,
        typer.Option(
            "--manifest",
            metavar="FILE",
            help="Write a manifest of SHA-256 for `--against`; reads every byte.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find what would keep a model from running, before it is started.

    Reads headers, configuration and tokenizer, no weights, so that it takes seconds. `--manifest` and
    `--against` read every byte. The exit code is 1 if a check failed. Needs neither a card nor torch.
    """
    from kb.cli.output import get_error_console, print_json
    from kb.runtime.manifest import compare_manifest, write_manifest
    from kb.runtime.verify import verify_model
    from kb.settings import load_settings

    report = verify_model(model, runtime_python=load_settings().runtime_python)
    console = get_error_console()
    if manifest is not None:
        with console.status("hashes the files"):
            write_manifest(model, manifest)
        report.add_written(manifest)
    if against is not None:
        with console.status("hashes the files"):
            report.checks.append(compare_manifest(model, against))
    if as_json:
        print_json(report.to_json())
    else:
        print_report(report)
    if report.failed:
        raise typer.Exit(ExitCode.FAILED)


def print_report(report: Report) -> None:
    """Print the checks as a table, and a fix for each that is not fine."""
    from rich.markup import escape

    from kb.cli.output import get_console

    console = get_console()
    console.print(
        f"[bold]{escape(str(report.folder))}[/]  {escape(report.summary)}", highlight=False, soft_wrap=True
    )
    print_checks(console, report.checks)


def print_checks(console: Console, checks: Sequence[Check]) -> None:
    """Print checks as a table, then a fix for each that is not fine."""
    from rich.markup import escape

    from kb.cli.output import make_table

    table = make_table("check", "", "found")
    for check in checks:
        table.add_row(check.name, _PAINTED[check.state], escape(check.detail))
    console.print(table)
    for check in checks:
        if check.fix:
            console.print(f"[bold]Fix[/]  {check.name}: {escape(check.fix)}", highlight=False, soft_wrap=True)


_PAINTED = {"ok": "[green]ok[/]", "warn": "[yellow]warn[/]", "fail": "[bold red]fail[/]", "info": "[dim]–[/]"}


def print_plan(made: MemoryPlan) -> None:
    """Print the plan: memory, what fits, and the options with their reasons."""
    from rich.markup import escape

    from kb.cli.output import get_console, make_table
    from kb.runtime.flags import choose_flags
    from kb.runtime.plan import largest_concurrency, largest_context

    console = get_console()
    capability = ".".join(str(number) for number in made.card.capability)
    console.print(
        f"[bold]{escape(made.shape.architecture)}[/] {made.shape.quantization or 'unquantised'} on "
        f"[bold]{escape(made.card.name)}[/] (compute capability {capability})",
        highlight=False,
    )
    table = make_table("memory of each card", ">MiB", "")
    for name, size_mib, note in list_parts(made):
        table.add_row(name, f"{size_mib:,.0f}", note)
    console.print(table)
    console.print(draw_bar(made), highlight=False)
    if not made.fits:
        console.print(f"\n[bold red]Does not fit[/]  {escape(made.problem)}", highlight=False, soft_wrap=True)
        for proposal in made.nearest:
            console.print(f"  [dim]→[/] {escape(proposal.text)}", highlight=False, soft_wrap=True)
        return
    console.print(
        f"\n[bold green]Fits[/]  {made.kv_tokens:,} tokens: {made.concurrency} at once with "
        f"{made.context_tokens:,} tokens each",
        highlight=False,
    )
    rows = [(f"{count} at once", f"{largest_context(made, count):,} tokens each") for count in (1, 4, 16, 64)]
    rows += [
        (f"{size:,} tokens", f"{largest_concurrency(made, size)} at once") for size in (4096, 8192, 32768)
    ]
    table = make_table("if you want", "you get")
    for asked, given in rows:
        table.add_row(asked, given)
    console.print(table)
    table = make_table("option", "value", "because")
    table.columns[1].no_wrap = table.columns[2].no_wrap = False
    for flag in choose_flags(made):
        table.add_row(flag.name, escape(" ".join(flag.value.splitlines())), f"[dim]{escape(flag.reason)}[/]")
    console.print(table)


def list_parts(made: MemoryPlan) -> list[tuple[str, float, str]]:
    """Return what takes memory, in the order of the bar."""
    slack = made.available_mib - sum(
        (
            made.weights_mib,
            made.state_mib,
            made.kv_mib,
            made.activations_mib,
            made.graphs_mib,
            made.reserve_mib,
        )
    )
    shared = f", {made.wish.shared_mib:,} MiB of it for other programs" if made.wish.shared_mib else ""
    parts = [
        ("driver", made.driver_mib, f"CUDA's own{shared}"),
        ("weights", made.weights_mib, "as loaded"),
        ("state", made.state_mib, "of linear attention, for each request"),
        ("KV cache", made.kv_mib, f"{made.kv_bytes_per_token / 1024:.0f} KiB a token"),
        (
            "activations",
            made.activations_mib,
            f"prompts are read {made.tuning.chunk_tokens:,} tokens at once",
        ),
        ("graphs", made.graphs_mib, f"decode graphs up to {made.tuning.graph_batch} requests"),
        ("reserve", made.reserve_mib + max(0.0, slack), "fragments and peaks"),
    ]
    return [part for part in parts if part[1] or part[0] == "KV cache"]


_COLOURS = {
    "driver": "bright_black",
    "weights": "blue",
    "state": "magenta",
    "KV cache": "green",
    "activations": "yellow",
    "graphs": "cyan",
    "reserve": "white",
}


def draw_bar(made: MemoryPlan) -> str:
    """Return the parts as one bar in markup; each has a letter, so that it reads without colours."""
    total = made.card.memory_mib
    bar, legend, drawn = "", [], 0
    reached = 0.0
    for name, size_mib, _ in list_parts(made):
        reached += size_mib
        cells = min(_BAR_CELLS, round(reached / total * _BAR_CELLS)) - drawn
        drawn += cells
        letter = name[0].upper()
        bar += f"[{_COLOURS[name]}]{letter * cells}[/]"
        legend.append(f"[{_COLOURS[name]}]{letter}[/] {name}")
    return f"|{bar}{'·' * (_BAR_CELLS - drawn)}| {total:,} MiB\n[dim]{'  '.join(legend)}[/]"


def describe_plan(made: MemoryPlan) -> dict[str, Any]:
    """Return the plan as JSON values."""
    from kb.runtime.flags import choose_flags

    return {
        "fits": made.fits,
        "problem": made.problem,
        "nearest": [proposal.text for proposal in made.nearest],
        "card": {
            "name": made.card.name,
            "memory_mib": made.card.memory_mib,
            "capability": ".".join(str(number) for number in made.card.capability),
        },
        "memory_mib": {name: round(size_mib, 1) for name, size_mib, _ in list_parts(made)},
        "kv_bytes_per_token": made.kv_bytes_per_token,
        "kv_tokens": made.kv_tokens,
        "context_tokens": made.context_tokens,
        "concurrency": made.concurrency,
        "mem_fraction_static": made.mem_fraction_static,
        "options": [
            {"name": flag.name, "value": flag.value, "reason": flag.reason} for flag in choose_flags(made)
        ],
    }
