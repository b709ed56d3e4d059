from __future__ import annotations

from dataclasses import replace
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from kb.errors import GeneratorUnavailableError
from kb.ports import LexicalEntry, StoredFile
from kb.retrieval import ANY, Retrieval
from kb.schemas import BoxOut, ErrorOut, FaultLookUpOut, FaultSearchOut
from kb.types import Block, BlockKind, Box, Chunk, Collection, Page, ParsedDocument, Passage, Scope, Span
from tests.unit.api.service import Service

FAULTS = "/v1/collections/default/faults"
RECORD = {"代码": "E-0132", "现象": "油温过高", "原因": "冷却器结垢", "处理": "停机并检查冷却器", "等级": "A"}
TEXT = " | ".join(RECORD.values())


class FoundTable:
    """A retriever that finds the one chunk, with the evidence it is told."""

    def __init__(self, chunk: Chunk) -> None:
        self.retrieval = Retrieval(
            passages=(Passage(chunk, "press.pdf", 1.0, 0),), evidence=0.9, evidence_by_language={"zh": 0.9}
        )
        self.asked: list[int] = []

    def retrieve(self, collection: Collection, query: str, *, top_k: int, scope: Scope = ANY) -> Retrieval:
        self.asked.append(top_k)
        return self.retrieval


@pytest.fixture
def table(service: Service, client: TestClient) -> FoundTable:
    """The default collection holds one row, on a page with a layout."""
    catalog = service.catalog
    collection = catalog.get_collection("default")
    registration = catalog.register_document(
        collection.id,
        name="press.pdf",
        stored=StoredFile("0" * 64, 1),
        media_type="application/pdf",
        now=service.clock(),
    )
    document = registration.document
    chunk = Chunk(
        f"{document.key}-00000",
        document.id,
        1,
        0,
        TEXT,
        (Span(3, 0, len(TEXT)),),
        context=" | ".join(RECORD),
        heading_path=("故障代码",),
        records=(RECORD,),
        language="zh",
    )
    block = Block(BlockKind.TABLE_ROW, 0, len(TEXT), box=Box(1, 2, 3, 4), record=RECORD)
    page = Page(3, TEXT, width=595.0, height=842.0, blocks=(block,))
    catalog.save_parsed(document.job_id, ParsedDocument((page,), "application/pdf"), now=service.clock())
    catalog.save_chunks(document.job_id, [chunk])
    service.lexical.index.upsert(collection.id, [LexicalEntry(chunk.id, document.key, chunk.indexed_text)])
    found = FoundTable(chunk)
    service.retriever.instead = found
    return found


def read_error(text: str) -> tuple[str, list[str]]:
    error = ErrorOut.model_validate_json(text).error
    return error.code, error.suggestions


@pytest.mark.parametrize("spelling", ["E-0132", "e0132", "Ｅ ０１３２", "E/0132"])
def test_a_code_gives_its_row_as_fields(client: TestClient, table: FoundTable, spelling: str) -> None:
    response = client.get(f"{FAULTS}/{quote(spelling, safe='')}")

    found = FaultLookUpOut.model_validate(response.json())
    (fault,) = found.faults
    assert (found.code, found.collection, found.total) == (spelling, "default", 1)
    assert (fault.kind, fault.code, fault.description) == ("row", "E-0132", "油温过高")
    assert (fault.cause, fault.remedy) == ("冷却器结垢", "停机并检查冷却器")
    assert fault.record == RECORD
    assert (fault.document_name, fault.page_number, fault.quote) == ("press.pdf", 3, TEXT)
    assert fault.box == BoxOut(x0=1, y0=2, x1=3, y1=4)
    assert fault.score is None


def test_an_unknown_code_is_a_404_with_the_nearest_codes(client: TestClient, table: FoundTable) -> None:
    response = client.get(f"{FAULTS}/E-O132")

    assert response.status_code == 404
    assert read_error(response.text) == ("code_unknown", ["E-0132"])
    assert "冷却器" not in response.text


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        (f"{FAULTS}/油温", 400, "invalid_request"),
        (f"{FAULTS}/{'E' * 65}", 422, "invalid_request"),
        (f"{FAULTS}/E-0132?limit=0", 422, "invalid_request"),
        ("/v1/collections/nope/faults/E-0132", 404, "collection_not_found"),
    ],
)
def test_wrong_requests_are_told_apart(
    client: TestClient, table: FoundTable, path: str, status: int, code: str
) -> None:
    response = client.get(path)

    assert response.status_code == status
    assert read_error(response.text) == (code, [])


def test_a_symptom_gives_rows_with_a_score(client: TestClient, table: FoundTable) -> None:
    response = client.post(f"{FAULTS}/search", json={"symptom": "油温太高", "top_k": 3})

    found = FaultSearchOut.model_validate(response.json())
    assert [fault.code for fault in found.faults] == ["E-0132"]
    assert found.faults[0].box == BoxOut(x0=1, y0=2, x1=3, y1=4)
    assert 0 < (found.faults[0].score or 0) <= 1
    assert (found.symptom, found.evidence, found.unknown_codes) == ("油温太高", 0.9, [])


def test_a_symptom_without_evidence_gives_an_empty_list(client: TestClient, table: FoundTable) -> None:
    table.retrieval = replace(table.retrieval, evidence=0.2)

    response = client.post(f"{FAULTS}/search", json={"symptom": "法国总统"})

    assert response.status_code == 200
    assert FaultSearchOut.model_validate(response.json()).faults == []


def test_an_unknown_code_in_a_symptom_is_named_and_not_answered(
    client: TestClient, table: FoundTable
) -> None:
    table.retrieval = replace(table.retrieval, unknown_codes=("E-0133",))

    found = client.post(f"{FAULTS}/search", json={"symptom": "E-0133 油温高"}).json()

    assert (found["faults"], found["unknown_codes"]) == ([], ["E-0133"])


@pytest.mark.parametrize(
    ("body", "status"),
    [({"symptom": "  "}, 400), ({"symptom": ""}, 422), ({}, 422), ({"symptom": "x", "top_k": 0}, 422)],
)
def test_an_empty_symptom_is_refused(client: TestClient, body: dict[str, object], status: int) -> None:
    response = client.post(f"{FAULTS}/search", json=body)

    assert response.status_code == status
    assert read_error(response.text)[0] == "invalid_request"


def test_both_work_while_the_generator_is_down(
    client: TestClient, service: Service, table: FoundTable
) -> None:
    service.generator.down = True
    with pytest.raises(GeneratorUnavailableError):
        service.generator.ping()

    assert client.get(f"{FAULTS}/E-0132").status_code == 200
    assert client.post(f"{FAULTS}/search", json={"symptom": "油温过高"}).json()["faults"]


def test_the_routes_are_described_with_examples(client: TestClient) -> None:
    spec = client.get("/openapi.json").json()

    assert "get" in spec["paths"]["/v1/collections/{collection}/faults/{code}"]
    assert "post" in spec["paths"]["/v1/collections/{collection}/faults/search"]
    for name, shape in (("FaultLookUpOut", FaultLookUpOut), ("FaultSearchOut", FaultSearchOut)):
        (example,) = spec["components"]["schemas"][name]["examples"]
        shape.model_validate(example)
