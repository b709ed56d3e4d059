"""Fault look-up through the real service: tables over pages, work orders, symptoms, no generator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.service import SAMPLES, Service, find_models_dir, start_service

NAMES = ("press_manual_zh.pdf", "drive_manual_en.pdf", "shift_notes.md")
ORDERS = """工单号,日期,设备,故障代码,故障现象,原因,处理措施,备件
WO-0811,2024-08-12,YL315-02,E-0401,油温 61 °C 报警,冷却器水阀未全开,打开水阀,
WO-0822,2024-08-16,YL315-03,E-0203 / F30015,油泵停转,控制柜滤网堵塞,更换滤网,FM-9
WO-0823,2024-08-16,CV-05,,输送带停止,拉绳被拉长,张紧拉绳并测试开关,
"""
FAULTS = "/v1/collections/default/faults"


@pytest.fixture(scope="module")
def press(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service whose generator is configured and down, with the manuals and an export of work orders."""
    folder = tmp_path_factory.mktemp("faults")
    orders = folder / "work_orders.csv"
    orders.write_text(ORDERS, "utf-8")
    with start_service(
        folder / "data",
        KB_GENERATOR="http",
        KB_GENERATOR_URL="http://127.0.0.1:9/v1",
        KB_GENERATOR_TOKENIZER_PATH=str(find_models_dir() / "generator"),
    ) as running:
        paths = [*(SAMPLES / name for name in NAMES), orders]
        result = running.run_kb("ingest", *map(str, paths))
        assert result.returncode == 0, f"{result.stdout}\n{result.stderr}\n{running.read_logs()}"
        yield running


def get(service: Service, path: str) -> dict[str, Any]:
    response = service.http.get(f"{FAULTS}/{path}")
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


@pytest.mark.parametrize(
    ("spelling", "document", "page", "cause", "remedy"),
    [
        ("e0471", "press_manual_zh.pdf", 12, "氮气预充压力低于 4.5 MPa", "补充氮气到 5.5 MPa"),
        ("Ｅ－０４２１", "press_manual_zh.pdf", 12, "真空度超过 0.02 MPa", "更换吸油滤芯 LX-250"),
        ("E 0101", "press_manual_zh.pdf", 10, "急停按钮被按下", "排除危险后"),
        ("f30050", "drive_manual_en.pdf", 9, "more than 0.5 s apart", "safety relay"),
    ],
)
def test_a_code_gives_its_row_with_the_place_on_the_page(
    press: Service, spelling: str, document: str, page: int, cause: str, remedy: str
) -> None:
    fault = get(press, spelling)["faults"][0]

    assert (fault["kind"], fault["document_name"], fault["page_number"]) == ("row", document, page)
    assert cause in fault["cause"]
    assert remedy in fault["remedy"]
    assert len(fault["record"]) == 4
    shown = press.http.get(
        f"/v1/collections/default/documents/{fault['document_id']}/pages/{fault['page_number']}"
    ).json()
    assert shown["text"][fault["char_start"] : fault["char_end"]] == fault["quote"]
    assert 0 <= fault["box"]["x0"] < fault["box"]["x1"] <= shown["width"]
    assert 0 <= fault["box"]["y0"] < fault["box"]["y1"] <= shown["height"]


def test_every_code_of_the_manuals_gives_its_own_row_first(press: Service) -> None:
    codes = [
        line.split(",", 1)[0]
        for name in ("press_faults_zh.csv", "drive_faults_en.csv")
        for line in (SAMPLES / "source" / name).read_text("utf-8").splitlines()
        if line.startswith(("E-0", "F300"))
    ]

    found = {code: get(press, code)["faults"][0] for code in codes}

    assert len(codes) == 50
    assert [code for code, fault in found.items() if fault["code"] != code or fault["kind"] != "row"] == []
    assert all(fault["description"] and fault["remedy"] for fault in found.values())


def test_work_orders_follow_the_manual_and_notes_follow_them(press: Service) -> None:
    found = get(press, "F30015")

    assert [(fault["kind"], fault["document_name"]) for fault in found["faults"]] == [
        ("row", "drive_manual_en.pdf"),
        ("row", "work_orders.csv"),
        ("mention", "shift_notes.md"),
    ]
    assert found["faults"][1]["record"]["设备"] == "YL315-03"
    assert found["faults"][1]["box"] is None


@pytest.mark.parametrize(
    ("typed", "meant"), [("E-0472", "E-0471"), ("F3OO15", "F30015"), ("E-O421", "E-0421")]
)
def test_an_unknown_code_is_never_answered_from_a_neighbour(press: Service, typed: str, meant: str) -> None:
    response = press.http.get(f"{FAULTS}/{typed}")

    assert response.status_code == 404
    error = response.json()["error"]
    assert error["code"] == "code_unknown"
    assert error["suggestions"][0] == meant


@pytest.mark.parametrize(
    ("symptom", "column", "value"),
    [
        ("双手按钮按了滑块不下来", "code", "E-0105"),
        ("encoder signal lost", "code", "F30045"),
        ("编码器信号丢失", "code", "F30045"),
        ("输送带停了", "document_name", "work_orders.csv"),
    ],
)
def test_a_symptom_finds_its_fault(press: Service, symptom: str, column: str, value: str) -> None:
    response = press.http.post(f"{FAULTS}/search", json={"symptom": symptom, "top_k": 3})

    faults = response.json()["faults"]
    assert faults[0][column] == value
    assert 1 <= len(faults) <= 3
    assert [fault["score"] for fault in faults] == sorted((f["score"] for f in faults), reverse=True)


def test_a_symptom_that_nothing_fits_is_an_empty_list(press: Service) -> None:
    response = press.http.post(f"{FAULTS}/search", json={"symptom": "法国现任总统是谁"})

    assert response.status_code == 200
    assert response.json()["faults"] == []


def test_the_command_shows_it_and_tells_what_is_not_found(press: Service) -> None:
    shown = press.run_kb("fault", "e-0471")
    found = press.run_kb("fault", "双手按钮按了滑块不下来", "--json")
    unknown = press.run_kb("fault", "E-0472", "--json")

    assert shown.returncode == 0, shown.stderr
    assert "蓄能器压力低" in shown.stdout
    assert "《press_manual_zh.pdf》第 12 页" in shown.stdout
    assert json.loads(found.stdout)["faults"][0]["code"] == "E-0105"
    assert unknown.returncode == 4
    assert json.loads(unknown.stdout)["error"]["suggestions"][0] == "E-0471"
