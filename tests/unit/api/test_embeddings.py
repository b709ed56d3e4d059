from __future__ import annotations

import base64

import numpy as np
import pytest
from openai import OpenAI
from starlette.testclient import TestClient

from kb.schemas import EmbeddingsOut


def test_each_text_has_a_vector_in_order_and_its_tokens_are_counted(client: TestClient) -> None:
    reply = client.post("/v1/embeddings", json={"model": "any", "input": ["a b c", "d"], "user": "x"})

    found = EmbeddingsOut.model_validate(reply.json())
    assert [item.index for item in found.data] == [0, 1]
    assert found.data[0].embedding == [1.0, 0.0]
    assert found.usage.prompt_tokens == found.usage.total_tokens == 4
    assert found.model == "any"


@pytest.mark.parametrize("kind", ["passage", "query"])
def test_base64_holds_the_same_numbers(client: TestClient, kind: str) -> None:
    reply = client.post(
        "/v1/embeddings", json={"input": "a", "encoding_format": "base64", "input_type": kind}
    )

    raw = base64.b64decode(reply.json()["data"][0]["embedding"])
    assert np.frombuffer(raw, dtype="<f4").tolist() == [1.0, 0.0]


def test_the_official_client_reads_them(client: TestClient) -> None:
    with OpenAI(base_url="http://testserver/v1", api_key="unused", http_client=client) as openai:
        found = openai.embeddings.create(model="embedder", input=["a b", "c"])

    assert [item.embedding for item in found.data] == [[1.0, 0.0], [1.0, 0.0]]
    assert found.usage.total_tokens == 3


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"input": "word " * 101}, 400, "context_length_exceeded"),
        ({"input": ["a", " "]}, 400, "invalid_request"),
        ({"input": "a", "dimensions": 3}, 400, "invalid_request"),
        ({"input": []}, 422, "invalid_request"),
        ({"input": [[1, 2]]}, 422, "invalid_request"),
        ({"input": "a", "encoding_format": "int8"}, 422, "invalid_request"),
    ],
)
def test_what_cannot_be_embedded_is_refused(
    client: TestClient, body: dict[str, object], status: int, code: str
) -> None:
    reply = client.post("/v1/embeddings", json=body)

    assert reply.status_code == status
    assert reply.json()["error"]["code"] == code
