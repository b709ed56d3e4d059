"""`kb model serve`: runs the generator's runtime in this process's care."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
from kb.cli.session import ExitCode, JsonOption, get_session

if TYPE_CHECKING:
    from rich.console import Console

    from kb.runtime.launch import Launch
    from kb.runtime.server import RuntimeServer, StepDown
    from kb.supervisor import ProcessReport

_LOG_NAME = "runtime.log"


def serve(
    ctx: typer.Context,
    model: ModelArgument,
    *,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port on this machine.")] = 30000,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; it has no authentication.")
    ] = "127.0.0.1",
    name: Annotated[
        str, typer.Option("--name", help="Name of the model in answers; default is the folder's.")
    ] = "",
    context: ContextOption = None,
    concurrency: ConcurrencyOption = None,
    kv_cache: KvOption = "auto",
    gpus: GpusOption = 1,
    gpu: GpuOption = None,
    vram: VramOption = None,
    share: ShareOption = "0",
    lora: Annotated[
        list[str] | None,
        typer.Option("--lora", metavar="NAME=DIR", help="Load this LoRA adapter; may be repeated."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="WORD",
            help="Hand this word to the runtime as it is, instead of the plan's; may be repeated.",
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(
            "--log", metavar="FILE", help="Log of the runtime; default is in the data folder's `logs`."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the command line, start nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Start SGLang with a planned memory, watch it, and end it with Ctrl-C.

    The folder is checked first. A runtime that runs out of memory at its start is started once more with
    less; one that ends later is started again, up to five times. Nothing it started is left behind.
    """
    from kb.cli.output import get_console
    from kb.cli.service import signals_as_interrupt, signals_ignored
    from kb.runtime.launch import Launch, find_python
    from kb.runtime.server import RuntimeServer

    settings = get_session(ctx).load_settings()
    console = get_console()
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
    _check_folder(model)
    if not made.fits:
        raise _not_fitting(made.problem, [proposal.text for proposal in made.nearest])
    launch = Launch(
        python=find_python(settings.runtime_python),
        model=model.absolute(),
        port=port,
        host=host,
        name=name,
        plan=made,
        adapters=_read_adapters(lora or [], model),
        extra=tuple(option or ()),
    )
    if dry_run:
        _print_command(console, launch, as_json=as_json)
        return
    view = _View(console, as_json=as_json)
    server = RuntimeServer(
        launch=launch,
        log_path=(log or settings.data_dir / "logs" / _LOG_NAME).absolute(),
        on_change=view.note,
        on_step_down=view.note_step,
    )
    serving = False
    with signals_as_interrupt():
        try:
            ready_s = server.start()
            serving = True
            view.welcome(server, ready_s=ready_s)
            server.supervisor.watch(threading.Event())
        except KeyboardInterrupt:
            if not serving:
                raise
            raise typer.Exit(ExitCode.OK) from None
        finally:
            with signals_ignored():
                server.stop()


def _check_folder(model: Path) -> None:
    """Raise `ModelCorruptError` for what `kb model verify` calls a failure."""
    from kb.errors import ModelCorruptError
    from kb.runtime.verify import verify_model

    failed = [check for check in verify_model(model, runtime_python=None).checks if check.state == "fail"]
    if failed:
        raise ModelCorruptError(
            "; ".join(f"{check.name}: {check.detail}" for check in failed),
            next_step=" ".join(check.fix for check in failed),
        )


def _not_fitting(problem: str, nearest: list[str]) -> Exception:
    from kb.errors import ConfigurationError

    step = f"What fits: {'; '.join(nearest)}." if nearest else "Take a smaller model or a larger card."
    return ConfigurationError(f"the model does not fit: {problem}", next_step=step)


def _read_adapters(texts: list[str], model: Path) -> tuple[Any, ...]:
    from kb.runtime.checkpoint import read_config
    from kb.runtime.lora import parse_adapter, read_adapter
    from kb.runtime.shape import read_shape

    base = read_shape(read_config(model), weight_bytes=0)
    return tuple(read_adapter(*parse_adapter(text), base=base) for text in texts)


def _print_command(console: Console, launch: Launch, *, as_json: bool) -> None:
    import shlex

    from kb.cli.output import print_json

    if as_json:
        print_json({"command": list(launch.command)})
    else:
        console.print(shlex.join(launch.command), highlight=False, markup=False, soft_wrap=True)


class _View:
    """Says what the runtime does: one line a change, or one JSON document a line."""

    def __init__(self, console: Console, *, as_json: bool) -> None:
        self._console = console
        self._as_json = as_json
        self._said = ""
        self._started = time.monotonic()

    def note(self, report: ProcessReport) -> None:
        """Take a change of the process."""
        if self._as_json:
            self._emit(event="process", state=report.state.value, detail=report.detail, pid=report.pid)
            return
        said = report.detail or report.state.value
        if said != self._said and report.state.value != "stopped":
            self._said = said
            elapsed = time.monotonic() - self._started
            self._console.print(f"[dim]{elapsed:6.0f} s[/] {_escaped(said)}", highlight=False, soft_wrap=True)

    def note_step(self, step: StepDown) -> None:
        """Say that less is asked for now."""
        if self._as_json:
            self._emit(event="step_down", code=step.death.code, detail=step.text)
        else:
            self._console.print(f"[yellow]![/] {_escaped(step.text)}", highlight=False, soft_wrap=True)

    def welcome(self, server: RuntimeServer, *, ready_s: float) -> None:
        """Say where it is reached, and how the service is told."""
        from kb.cli.output import format_duration

        launch = server.launch
        if self._as_json:
            self._emit(
                event="ready",
                url=f"{launch.url}/v1",
                ready_s=round(ready_s, 1),
                context_tokens=launch.plan.context_tokens,
                stepped_down=bool(server.steps),
            )
            return
        self._console.print(
            f"[bold green]Ready[/] after {format_duration(ready_s)} on [bold]{launch.url}/v1[/]",
            highlight=False,
        )
        for label, value in (
            ("log", str(server.log_path)),
            ("service", f"KB_GENERATOR_URL={launch.url}/v1 KB_GENERATOR_TOKENIZER_PATH={launch.model}"),
        ):
            self._console.print(f"  [dim]{label:<9}[/]{_escaped(value)}", highlight=False, soft_wrap=True)
        self._console.print("[dim]Ctrl-C stops it.[/]", highlight=False)

    def _emit(self, **values: object) -> None:
        _emit_line(values)


def _emit_line(values: dict[str, object]) -> None:
    import json

    sys.stdout.write(json.dumps(values, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
