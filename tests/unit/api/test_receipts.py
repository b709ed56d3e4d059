from __future__ import annotations

from dataclasses import replace

from starlette.testclient import TestClient

from kb.schemas import ReceiptOut, ReplayOut
from tests.unit.api.service import Service
from tests.unit.kb.stand_ins import make_receipt


def _keep(service: Service, answer_id: str) -> None:
    collection = service.catalog.get_collection("default")
    receipt = make_receipt(collection, answer_id=answer_id, now=service.clock())
    service.catalog.save_receipt(replace(receipt, preset="fault", think=True))


def test_a_receipt_is_shown_by_the_answers_id(client: TestClient, service: Service) -> None:
    _keep(service, "ans_1")

    receipt = ReceiptOut.model_validate(client.get("/v1/answers/ans_1").json())

    assert receipt.query == "E-0471 还有别的原因吗"
    assert receipt.retrieved[0].sha256 == "0" * 64
    assert receipt.history[0].content == "E-0471 怎么处理？"
    assert receipt.sampling.seed == 3


def test_a_replay_asks_the_same_and_says_what_differs(client: TestClient, service: Service) -> None:
    _keep(service, "ans_1")
    _keep(service, "a1")  # what the fake answerer's answer is called
    kept = service.catalog.receipts["a1"]
    service.catalog.receipts["a1"] = replace(kept, text="anders", retrieved=())

    replay = ReplayOut.model_validate(client.post("/v1/answers/ans_1/replay").json())

    assert (replay.before.id, replay.after.id) == ("ans_1", "a1")
    assert replay.removed == ["d-g1-00000"]
    assert replay.differences == ["text"]
    (asked,) = service.answerer.asked
    assert (asked.question, asked.preset, asked.think) == ("还有别的原因吗", "fault", True)
    assert asked.history[0].content == "E-0471 怎么处理？"
    assert asked.sampling == kept.sampling


def test_without_receipts_nothing_is_replayed(client: TestClient, service: Service) -> None:
    _keep(service, "ans_1")

    assert client.get("/v1/answers/ans_2").json()["error"]["code"] == "answer_not_found"
    assert client.post("/v1/answers/ans_2/replay").status_code == 404
    assert service.answerer.asked == []


def test_receipts_are_deleted_one_by_one_or_by_age(client: TestClient, service: Service) -> None:
    for name in ("ans_1", "ans_2", "ans_3"):
        _keep(service, name)

    assert client.delete("/v1/answers/ans_1").status_code == 204
    assert client.delete("/v1/answers/ans_1").status_code == 404
    assert client.delete("/v1/answers", params={"older_than_days": 1}).json() == {"deleted": 0}
    service.clock.advance(1)
    assert client.delete("/v1/answers", params={"older_than_days": 0}).json() == {"deleted": 2}
    assert client.delete("/v1/answers").status_code == 422
