"""`kb replay`: asks the question of an earlier answer again and shows what changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kb.cli.session import JsonOption, get_session

if TYPE_CHECKING:
    from rich.console import Console

    from kb.schemas import ReceiptOut, ReplayOut


def replay(
    ctx: typer.Context,
    answer_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the answer, as `kb ask` shows it.")],
    *,
    show: Annotated[
        bool, typer.Option("--show", help="Show what the answer was made from; ask nothing.")
    ] = False,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the receipt of the answer; ask nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Ask the question of an earlier answer again: what would be found, prompted and answered today.

    Works as long as the service keeps the answer's receipt (settings `receipts` and `receipt_days`).
    """
    from kb.cli.output import get_console, print_json

    if show and delete:
        raise typer.BadParameter("--show and --delete exclude each other", param_hint="--show")
    with get_session(ctx).open_client() as client:
        if delete:
            client.delete_receipt(answer_id)
            get_console().print(f"Deleted the receipt of {answer_id}.", highlight=False, markup=False)
            return
        if show:
            receipt = client.get_receipt(answer_id)
            print_json(receipt) if as_json else print_receipt(get_console(), receipt)
        else:
            replayed = client.replay(answer_id)
            print_json(replayed) if as_json else print_replay(get_console(), replayed)


def print_receipt(console: Console, receipt: ReceiptOut) -> None:
    """Print what an answer was made from."""
    rows = {
        "asked": f"{receipt.created_at:%Y-%m-%d %H:%M} · {receipt.collection}",
        "question": receipt.question,
        "searched for": "" if receipt.query == receipt.question else receipt.query,
        "answer": receipt.text,
        "refused": receipt.refusal or "",
        "made by": " · ".join(
            part for part in (receipt.mode, receipt.model, receipt.model_fingerprint) if part
        ),
        "preset": receipt.preset,
        "prompt": receipt.prompt_sha256[:16],
        "index": f"{receipt.index_fingerprint} · generation {receipt.index_generation}",
        "evidence": f"{receipt.evidence:.2f} (threshold {receipt.evidence_threshold:.2f})",
        "timings": ", ".join(f"{name} {value:.0f} ms" for name, value in receipt.timings_ms.items()),
    }
    _print_rows(console, rows)
    for place, mark in enumerate(receipt.retrieved, start=1):
        prompted = "*" if mark.chunk_id in receipt.prompt_chunks else " "
        console.print(
            f"{place:>4}{prompted} {mark.document_name}, page {mark.page_number}  {mark.sha256[:12]}",
            highlight=False,
            markup=False,
        )


def print_replay(console: Console, replay: ReplayOut) -> None:
    """Print what differs between then and now."""
    names = {mark.chunk_id: mark for mark in (*replay.before.retrieved, *replay.after.retrieved)}
    console.print(replay.before.question, style="bold", highlight=False, markup=False)
    if not (replay.differences or replay.added or replay.removed or replay.changed or replay.reordered):
        console.print("Nothing would change.", highlight=False)
        return
    for title, chunk_ids in (
        ("found only now", replay.added),
        ("found no more", replay.removed),
        ("changed", replay.changed),
    ):
        for chunk_id in chunk_ids:
            mark = names[chunk_id]
            console.print(
                f"{title}: {mark.document_name}, page {mark.page_number}", highlight=False, markup=False
            )
    if replay.reordered:
        console.print("The passages come in another order.", highlight=False)
    for name in replay.differences:
        before, after = getattr(replay.before, name), getattr(replay.after, name)
        _print_rows(console, {f"{name} then": str(before), f"{name} now": str(after)})


def _print_rows(console: Console, rows: dict[str, str]) -> None:
    for label, value in rows.items():
        if value:
            console.print(f"{label:<14}", style="dim", end="", highlight=False)
            console.print(value, highlight=False, markup=False)
