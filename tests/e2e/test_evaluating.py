"""`kb eval` on a set that brings its own documents, with real processes and models."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service import KB_COMMAND, ROOT, Service, start_service, wait_until

CORPUS = [
    {"id": "vent", "title": "Venting the pump", "text": "Close valve V2, then open the vent screw one turn."},
    {"id": "belt", "text": "The fan belt of the cooling tower is replaced every 4000 hours."},
    {"id": "belt-zh", "text": "冷却塔的风机皮带每 4000 小时更换一次。", "lang": "zh"},
    {"id": "oil", "text": "液压油呈乳白色，说明油中进水，应更换液压油并检查冷却器。"},
    {"id": "e0471", "text": "E-0471 氮气压力过低：补充氮气至 17.5 MPa。"},
    {"id": "e0472", "text": "E-0472 氮气压力过高：缓慢放气至 17.5 MPa。"},
    {"id": "grease", "text": "Motor bearings are greased with 30 g of lithium grease."},
    {"id": "copy", "text": "Motor bearings are greased with 30 g of lithium grease."},
]
QUERIES = [
    {
        "id": "q1",
        "text": "How is the pump vented?",
        "gold_ids": ["vent"],
        "kind": "how",
        "answers": ["vent screw"],
    },
    {"id": "q2", "text": "E-0471 怎么处理？", "gold_ids": ["e0471"], "kind": "code", "answers": ["17.5 MPa"]},
    {
        "id": "q3",
        "text": "冷却塔风机皮带多久换一次？",
        "gold_ids": ["belt-zh"],
        "gold_ids_xling": ["belt"],
        "kind": "how",
    },
    {"id": "q4", "text": "How much grease does a motor bearing get?", "gold_ids": ["copy"], "kind": "how"},
    {"id": "q5", "text": "E-0999 怎么处理？", "gold_ids": [], "answerable": False, "kind": "code"},
]


@pytest.fixture(scope="module")
def quoting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Yield an empty service that answers with quotes: what a model writes is measured elsewhere."""
    with start_service(tmp_path_factory.mktemp("quoting") / "data", KB_GENERATOR="extractive") as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "pumps"
    path.mkdir()
    for name, rows in (("corpus", CORPUS), ("queries", QUERIES)):
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (path / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    return path


def list_collections(service: Service) -> list[str]:
    return [item["name"] for item in service.http.get("/v1/collections").json()["collections"]]


def test_a_folder_is_ingested_asked_and_dropped(quoting: Service, folder: Path, tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    before = list_collections(quoting)

    ended = quoting.run_kb("eval", str(folder), "--json", "-", "--results", str(results))

    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout)
    assert report["retrieval"]["hit@5"] == 1
    assert report["groups"]["kind code"]["hit@1"] == 1
    assert report["groups"]["evidence xling"]["hit@5"] == 1
    assert report["plain"]["lexical"]["hit@5"] == 1
    assert report["refusal"]["recall"] == report["citations"]["valid"] == 1
    found = json.loads(results.read_text("utf-8"))
    assert set(found["q4"][:2]) == {"grease", "copy"}
    answers = json.loads((tmp_path / "results.answers.json").read_text("utf-8"))
    assert answers["q5"]["reason"] == "code_unknown"
    assert {item["file"] for item in answers["q2"]["evidence"]} == {"e0471"}
    assert list_collections(quoting) == before


def test_ctrl_c_drops_the_collection_of_a_folder(quoting: Service, folder: Path) -> None:
    before = list_collections(quoting)
    with subprocess.Popen(
        [*KB_COMMAND, "eval", str(folder)],
        env=dict(quoting.environment),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        wait_until(lambda: list_collections(quoting) != before, what="the set's collection is there")
        process.send_signal(signal.SIGINT)
        status = process.wait(60)

    assert status == 130
    assert list_collections(quoting) == before
