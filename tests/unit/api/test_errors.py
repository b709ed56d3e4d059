from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

import api.errors
import kb.errors
from api.errors import STATUSES, get_status
from kb.errors import BackendError, CallerError, DocumentError, KbError
from kb.schemas import ErrorOut
from tests.unit.api.service import LOCAL, Service


def list_error_classes() -> list[type[KbError]]:
    found = {
        value
        for module in (kb.errors, api.errors)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, KbError)
    }
    return sorted(found, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", list_error_classes())
def test_every_error_class_has_a_fitting_status(kind: type[KbError]) -> None:
    status = get_status(kind)

    assert any(base in STATUSES for base in kind.__mro__[:3])
    if issubclass(kind, CallerError | DocumentError):
        assert 400 <= status < 500
    elif issubclass(kind, BackendError):
        assert status == 503
    else:
        assert status in {409, 500}


@pytest.mark.parametrize("kind", list_error_classes())
def test_every_error_has_a_code_of_its_own_kind_and_a_docstring(kind: type[KbError]) -> None:
    assert kind.code.isidentifier()
    assert kind.__doc__


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/nope", None, 404, "not_found"),
        ("GET", "/v1/nope", None, 404, "not_found"),
        ("PUT", "/v1/ask", None, 405, "method_not_allowed"),
        ("POST", "/v1/ask", b"{", 422, "invalid_request"),
        ("POST", "/v1/ask", b"\xff\xfe", 422, "invalid_request"),
        ("POST", "/v1/ask", b'{"question": 5}', 422, "invalid_request"),
        ("POST", "/v1/ask", b'{"question": "' + b"x" * 4_300_000 + b'"}', 413, "too_large"),
    ],
)
def test_every_failure_has_the_one_shape(
    client: TestClient, method: str, path: str, body: bytes | None, status: int, code: str
) -> None:
    response = client.request(method, path, content=body, headers={"Content-Type": "application/json"})

    assert response.status_code == status
    error = ErrorOut.model_validate(response.json()).error
    assert error.code == code
    assert error.message
    assert error.request_id == response.headers["x-request-id"]


def test_a_wrong_method_says_which_are_right(client: TestClient) -> None:
    assert client.put("/v1/ask").headers["allow"] == "POST"


def test_a_form_content_type_does_not_lift_the_limit_of_a_json_route(client: TestClient) -> None:
    response = client.post(
        "/v1/ask",
        content=b"x" * 4_300_000,
        headers={"Content-Type": "multipart/form-data; boundary=x"},
    )

    assert response.status_code == 413


def test_a_validation_error_names_the_field_and_does_not_repeat_the_input(client: TestClient) -> None:
    response = client.post("/v1/ask", json={"question": "canary", "top_k": "canary", "history": [1]})

    assert "canary" not in response.text
    error = response.json()["error"]
    assert error["param"] in {"history.0", "top_k"}
    assert "top_k: " in error["message"]
    assert "history.0: " in error["message"]


class CrashingRetriever:
    def retrieve(self, *_args: object, **_options: object) -> object:
        raise RuntimeError("canary question")


@pytest.fixture
def log_text() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logging.getLogger().addHandler(handler)
    yield stream
    logging.getLogger().removeHandler(handler)


def test_an_unexpected_exception_is_a_500_without_details(service: Service) -> None:
    service.retriever = CrashingRetriever()  # type: ignore[assignment]  # a broken part

    with TestClient(service.build_app(), client=LOCAL) as client:
        response = client.post("/v1/search", json={"query": "x"}, headers={"X-Request-ID": "r-1"})

    assert response.status_code == 500
    assert response.headers["x-request-id"] == "r-1"
    assert ErrorOut.model_validate(response.json()).error.code == "internal_error"
    assert "canary" not in response.text


def test_every_route_is_documented_with_its_errors(client: TestClient) -> None:
    spec = client.get("/openapi.json").json()

    documented = 0
    for path, methods in spec["paths"].items():
        for method, operation in methods.items():
            documented += 1
            place = f"{method} {path}"
            assert operation["summary"], place
            assert operation["description"], place
            assert operation["tags"], place
            success = min(operation["responses"])
            assert success.startswith("2"), place
            if path.startswith("/v1"):
                assert {"401", "422", "500", "503"} <= set(operation["responses"]), place
                for status, response in operation["responses"].items():
                    if status[0] in "45":
                        schema = response["content"]["application/json"]["schema"]
                        assert schema == {"$ref": "#/components/schemas/ErrorOut"}, place
                    elif status != "204" and "application/x-ndjson" not in response["content"]:
                        assert "$ref" in json.dumps(response), place
    assert documented == 39


def test_the_upload_form_is_documented(client: TestClient) -> None:
    operation = client.get("/openapi.json").json()["paths"]["/v1/collections/{collection}/documents"]["post"]

    assert "multipart/form-data" in operation["requestBody"]["content"]
