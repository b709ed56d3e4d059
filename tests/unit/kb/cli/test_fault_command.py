"""`kb fault`: codes and symptoms, panels and JSON, exit codes."""

from __future__ import annotations

import pytest

from kb.client import KbClient
from kb.schemas import ErrorOut, FaultLookUpOut, FaultSearchOut
from tests.unit.kb.cli.conftest import Run


@pytest.fixture(autouse=True)
def _collection(client: KbClient) -> None:
    client.ensure_collection("default")


def test_a_code_shows_its_fields_in_the_documents_language_and_where_they_stand(run: Run) -> None:
    ended = run("fault", "E-0471")

    assert ended.code == 0
    lines = [" ".join(line.strip("│ ").split()) for line in ended.out.splitlines()]
    for line in (
        "现象 压力低",
        "原因 漏气",
        "处理 补氮气",
        "介质 氮",
        "来源 《press_manual_zh.pdf》第 12 页",
    ):
        assert line in lines
    assert "E-0471" in lines[0]
    assert lines[-1] == "shift_notes.md, page 1 Alarm E-0471 came twice."


def test_json_is_what_the_service_sent(run: Run) -> None:
    found = FaultLookUpOut.model_validate(run("fault", "E-0471", "--json").json)

    assert [fault.kind for fault in found.faults] == ["row", "mention"]
    assert found.faults[0].record["介质"] == "氮"


def test_an_unknown_code_ends_with_not_found_and_names_the_nearest(run: Run) -> None:
    ended = run("fault", "E-0472")

    assert ended.code == 4
    assert "E-0471" in ended.err
    assert ended.out == ""


def test_an_unknown_code_is_one_json_document_with_suggestions(run: Run) -> None:
    ended = run("fault", "E-0472", "--json")

    assert ended.code == 4
    error = ErrorOut.model_validate(ended.json).error
    assert (error.code, error.suggestions) == ("code_unknown", ["E-0471"])


def test_words_are_searched_as_a_symptom(run: Run) -> None:
    found = FaultSearchOut.model_validate(run("fault", "蓄能器压力低", "--json").json)

    assert found.symptom == "蓄能器压力低"
    assert found.faults[0].score == 0.82
    assert "E-0471  0.82" in run("fault", "low pressure").out


def test_an_option_settles_whether_it_is_a_code(run: Run) -> None:
    assert run("fault", "rot").code == 0
    assert "symptom" in run("fault", "rot", "--json").json
    assert "total" in run("fault", "--code", "rot", "--json").json
    assert run("fault", "--symptom", "E-0471", "--json").json["symptom"] == "E-0471"


def test_a_symptom_that_nothing_fits_says_so_and_is_no_failure(run: Run) -> None:
    ended = run("fault", "nothing at all")

    assert ended.code == 0
    assert "No fault" in ended.out
    assert run("fault", "nothing at all", "--json").json["faults"] == []


def test_a_symptom_with_an_unknown_code_names_it(run: Run) -> None:
    assert "E-0472" in run("fault", "E-0472 and low pressure").out


def test_fewer_can_be_shown_and_the_rest_is_counted(run: Run) -> None:
    ended = run("fault", "E-0471", "-k", "1")

    assert "1 of 2 shown" in ended.out


def test_an_unknown_collection_is_not_found(run: Run) -> None:
    assert run("fault", "E-0471", "-c", "nope").code == 4
    assert run("fault", "oil hot", "-c", "nope").code == 4


def test_the_client_sends_codes_with_a_slash(client: KbClient) -> None:
    assert client.look_up_fault("A/7", limit=1).code == "A/7"
    assert client.search_faults("oil", top_k=1).faults[0].code == "E-0471"
