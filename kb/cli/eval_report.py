"""How an evaluation looks: tables, JSON, and the files that other scorers read."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kb.cli.measuring import PLAIN_INDEXES, list_documents

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from kb.cli.measuring import Measured, Names
    from kb.eval_baselines import Baseline
    from kb.evaluation import Latency, Metrics, Outcome, Ranking

_MOST_ROWS = 60
_INDEX_LABELS = {"lexical": "BM25 alone", "dense": "dense alone"}
_RANKING_LABELS = {
    "hit@1": "evidence on rank 1 (hit@1)",
    "hit@5": "evidence in the top 5 (hit@5)",
    "recall@5": "share of evidence in the top 5 (recall@5)",
    "mrr@10": "MRR@10",
    "ndcg@10": "nDCG@10",
}
_ANSWER_LABELS = {
    "refusal.precision": "refusals that were right",
    "refusal.recall": "unanswerable questions refused",
    "refusal.false": "answerable questions refused",
    "citations.valid": "citations exact on their page",
    "answers.match": "answers with an expected text",
    "answers.evidence": "expected text in the passages read",
}


def print_outcomes(console: Console, outcomes: Sequence[Outcome]) -> None:
    """Print one row per question: rank of its evidence, exact of all quotes, expected text found.

    Of a long list only what missed is shown.
    """
    from rich.markup import escape

    from kb.cli.output import cut, make_table

    shown = outcomes
    if len(outcomes) > _MOST_ROWS:
        missed = [outcome for outcome in outcomes if outcome.ok is False]
        shown = missed[:_MOST_ROWS]
        console.print(f"[dim]{len(shown)} of {len(missed)} misses; --json holds all[/]", highlight=False)
    asked = any(outcome.refused is not None for outcome in shown)
    columns = ["", "question", "kind", ">rank"]
    columns += ["answer", ">quotes", "text"] if asked else []
    table = make_table(*columns)
    for outcome in shown:
        question = outcome.question
        rank = "–" if outcome.first_rank is None else str(outcome.first_rank + 1)
        cells = [
            {True: "[green]ok[/]", False: "[bold red]miss[/]", None: "[dim]–[/]"}[outcome.ok],
            f"{escape(cut(question.text, 44))}\n[dim]{escape(question.id)}[/]",
            escape(question.kind),
            rank if question.answerable else "[dim]–[/]",
        ]
        if asked:
            found = {True: "[green]yes[/]", False: "[yellow]no[/]", None: "–"}[outcome.answer_found]
            mode = escape(outcome.mode or "–")
            cells += [
                f"[yellow]{mode}[/]" if outcome.refused else mode,
                f"{outcome.exact_citations}/{outcome.citations}" if outcome.citations else "–",
                found,
            ]
        table.add_row(*cells)
    if shown:
        console.print(table)


def print_metrics(
    console: Console, report: Mapping[str, Any], metrics: Metrics, *, baseline: Baseline | None
) -> None:
    """Print the means, beside each index alone and beside the baseline if there is one."""
    from rich.markup import escape

    from kb.cli.output import make_table

    plain: dict[str, Any] = report["plain"]
    figures = flatten(report)
    before = {} if baseline is None else baseline.figures
    columns = ["measure", ">value", *(f">{_INDEX_LABELS[name]}" for name in plain)]
    table = make_table(*columns, *([">change"] if before else []))

    def add(label: str, name: str, others: Sequence[float | None]) -> None:
        if name in figures:
            cells = [
                label,
                f"{figures[name]:.3f}",
                *("" if value is None else f"{value:.3f}" for value in others),
            ]
            table.add_row(*cells, *([_show_change(figures[name], before.get(name))] if before else []))

    for key, label in _RANKING_LABELS.items():
        add(label, f"retrieval.{key}", [plain[name][key] for name in plain])
    for group, ranked in report["groups"].items():
        for key in ("hit@1", "hit@5"):
            others = [ranked["plain"][name][key] for name in plain]
            add(f"{escape(group)}: {key}", f"groups.{group}.{key}", others)
    for name, label in _ANSWER_LABELS.items():
        add(label, name, [None] * len(plain))
    console.print(table)
    for label, latency in (("search", metrics.search), ("answer", metrics.answer)):
        if latency.median_s is not None and latency.p95_s is not None:
            console.print(
                f"{label}: median {latency.median_s * 1000:.0f} ms, 95 % within {latency.p95_s * 1000:.0f} ms",
                highlight=False,
            )
    if baseline is not None:
        console.print(
            f"[dim]change: against the baseline kept at {escape(baseline.kept_at)}[/]", highlight=False
        )
    style = "green" if metrics.ok == metrics.judged else "yellow"
    console.print(f"[bold {style}]{metrics.ok} of {metrics.judged} questions ok[/]", highlight=False)


def _show_change(value: float, before: float | None) -> str:
    if before is None:
        return "[dim]–[/]"
    change = value - before
    if abs(change) < 5e-4:
        return "[dim]=[/]"
    return f"{change:+.3f}"


def describe(outcomes: Sequence[Outcome], metrics: Metrics) -> dict[str, Any]:
    """Return everything as JSON values; seconds as milliseconds."""
    from kb.evaluation import group_outcomes, rank

    indexes = [name for name in PLAIN_INDEXES if any(name in item.plain for item in outcomes)]
    return {
        "questions": metrics.questions,
        "judged": metrics.judged,
        "ok": metrics.ok,
        "retrieval": _describe_ranking(metrics.ranking),
        "plain": {name: _describe_ranking(rank(outcomes, index=name)) for name in indexes},
        "groups": {
            name: {
                **_describe_ranking(rank(group)),
                "questions": len(group),
                "plain": {index: _describe_ranking(rank(group, index=index)) for index in indexes},
            }
            for name, group in group_outcomes(outcomes).items()
        },
        "refusal": {
            "precision": metrics.refusal_precision,
            "recall": metrics.refusal_recall,
            "false": metrics.false_refusals,
        },
        "citations": {"count": metrics.citations, "valid": metrics.citation_validity},
        "answers": {"match": metrics.answer_match, "evidence": metrics.evidence_match},
        "latency_ms": {
            "search": _describe_latency(metrics.search),
            "answer": _describe_latency(metrics.answer),
        },
        "outcomes": [_describe_outcome(item) for item in outcomes],
    }


def _describe_ranking(ranking: Ranking) -> dict[str, Any]:
    values = asdict(ranking)
    return {key: values[key.replace("@", "_at_")] for key in _RANKING_LABELS}


def _describe_latency(latency: Latency) -> dict[str, Any]:
    return {
        "median": None if latency.median_s is None else latency.median_s * 1000,
        "p95": None if latency.p95_s is None else latency.p95_s * 1000,
    }


def _describe_outcome(item: Outcome) -> dict[str, Any]:
    return {
        "id": item.question.id,
        "lang": item.question.lang,
        "kind": item.question.kind,
        "ok": item.ok,
        "rank": None if item.first_rank is None else item.first_rank + 1,
        "refused": item.refused,
        "mode": item.mode,
        "citations": item.citations,
        "exact_citations": item.exact_citations,
        "answer_found": item.answer_found,
        "retrieved": [
            [[name, page] for name, page in sorted(places, key=lambda place: (place[0], place[1] or 0))]
            for places in item.retrieved
        ],
    }


def flatten(report: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures that are compared from run to run, by name."""
    parts = ("retrieval", "refusal", "citations", "answers")
    named = {f"{part}.{key}": value for part in parts for key, value in report[part].items()}
    named |= {
        f"groups.{name}.{key}": group[key]
        for name, group in report["groups"].items()
        for key in _RANKING_LABELS
    }
    return {name: float(value) for name, value in named.items() if value is not None}


def list_results(outcomes: Sequence[Outcome]) -> dict[str, list[str]]:
    """Return the documents found for each question, by its id, best first."""
    return {item.question.id: list_documents(item.retrieved) for item in outcomes}


def list_answers(measured: Measured, names: Names) -> dict[str, dict[str, Any]]:
    """Return each answer with what it cites, by question id."""
    return {
        question_id: {
            "answer": answer.answer,
            "refused": answer.refused,
            "reason": None if answer.refusal is None else answer.refusal.reason,
            "evidence": [
                {"file": name, "page": citation.page_number, "text": citation.quote}
                for citation in answer.citations
                for name in names.list_names(citation)
            ],
        }
        for question_id, answer in measured.answers.items()
    }
