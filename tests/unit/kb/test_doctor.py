from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from kb import doctor
from kb.adapters.hf_prompt_counter import HfPromptCounter
from kb.runtime.checks import FAIL, INFO, OK, WARN, Check
from kb.runtime.nvidia import GpuProcess, parse_gpu
from kb.schemas import CollectionOut, DependencyOut, ReadyOut
from kb.types import Message
from tests.checkpoints import write_checkpoint
from tests.stand_in_runtime import StandIn, _build_handler

NOW = datetime(2026, 12, 1, 8, tzinfo=UTC)
CARD = [
    "0",
    "NVIDIA GeForce RTX 3060",
    "12288",
    "300",
    "8.6",
    "580.1",
    "16",
    "4",
    "4",
    "0",
    "Not Active",
    "Not Active",
    "45",
    "GPU-1",
]


def by_name(checks: Iterator[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def test_a_machine_that_is_fine(tmp_path: Path) -> None:
    found = by_name(doctor.check_machine(tmp_path / "data", now=NOW))

    assert list(found) == ["disk", "memory", "open files", "clock"]
    assert found["clock"].state == OK


def test_a_clock_before_our_own_files_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "catalog.sqlite").touch()
    os.utime(tmp_path / "catalog.sqlite", (NOW.timestamp(), NOW.timestamp()))

    late = by_name(doctor.check_machine(tmp_path, now=datetime(2026, 11, 1, tzinfo=UTC)))
    unset = by_name(doctor.check_machine(tmp_path / "none", now=datetime(1970, 1, 1, tzinfo=UTC)))

    assert (late["clock"].state, unset["clock"].state) == (FAIL, FAIL)
    assert late["clock"].fix


def test_without_a_driver_there_is_no_failure() -> None:
    (check,) = doctor.check_gpus(None, [])

    assert check.state == INFO


def test_a_card_with_few_lanes_errors_and_heat_says_so() -> None:
    row = [*CARD]
    row[6], row[9], row[10] = "8", "3", "Active"
    users = [GpuProcess("GPU-1", 77, "/usr/bin/python3", 250), GpuProcess("GPU-2", 78, "other", 1)]

    found = by_name(doctor.check_gpus([parse_gpu(row)], users))

    assert found["card 0"].detail == "NVIDIA GeForce RTX 3060, compute capability 8.6, driver 580.1"
    assert found["card 0 memory"].detail == "11,988 of 12,288 MiB free; used by python3 (77: 250 MiB)"
    assert (found["card 0 link"].state, found["card 0 link"].detail) == (WARN, "PCIe 4 x8, slow")
    assert found["card 0 errors"].state == FAIL
    assert "too hot, 45 °C" in found["card 0 speed"].detail
    fine = by_name(doctor.check_gpus([parse_gpu(CARD)], []))
    assert {check.state for check in fine.values()} == {OK}


def test_missing_models_name_the_command(tmp_path: Path) -> None:
    found = by_name(doctor.check_models(tmp_path, embedder=None, tokenizer=None))
    own = by_name(doctor.check_models(tmp_path, embedder=tmp_path, tokenizer=tmp_path / "none"))

    assert (found["embedder"].state, found["generator"].state) == (FAIL, INFO)
    assert found["embedder"].fix == "Run `kb models pull`."
    assert (own["embedder"].state, own["generator"].state) == (OK, FAIL)


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A runtime of a tiny model with 4096 tokens of context."""
    model = write_checkpoint(tmp_path / "tiny")
    arguments = ["--model-path", str(model), "--served-model-name", "tiny", "--context-length", "4096"]
    server = ThreadingHTTPServer(("127.0.0.1", 0), _build_handler(StandIn(arguments)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1", model
    server.shutdown()
    server.server_close()
    thread.join()


class _OtherCounter:
    def count_text(self, text: str) -> int:
        return len(text)

    def count_messages(self, messages: Sequence[Message]) -> int:
        return 1

    def neutralise(self, text: str) -> str:
        return text


def test_a_runtime_is_asked_for_its_limit_and_its_tokens(runtime: tuple[str, Path]) -> None:
    url, model = runtime
    ours = HfPromptCounter(path=model, template_options={"enable_thinking": False})

    alike = by_name(doctor.check_runtime(url, ours, context_tokens=8192))
    other = by_name(doctor.check_runtime(url, _OtherCounter(), context_tokens=None))

    assert alike["runtime"].detail == "tiny, 4,096 tokens in one request"
    assert alike["context"].state == WARN
    assert (alike["tokenizer"].state, other["tokenizer"].state) == (OK, FAIL)
    assert "KB_GENERATOR_TOKENIZER_PATH" in other["tokenizer"].fix


def test_a_runtime_that_is_down_or_unset() -> None:
    (down,) = doctor.check_runtime("http://127.0.0.1:9/v1", None, context_tokens=None)
    (unset,) = doctor.check_runtime(None, None, context_tokens=None)

    assert (down.state, unset.state) == (FAIL, INFO)


def test_the_services_parts_and_indexes_of_another_embedder() -> None:
    ready = ReadyOut(
        ready=False,
        dependencies=[
            DependencyOut(name="catalog", ok=True, required=True, detail="SQLite"),
            DependencyOut(name="vectors", ok=False, required=True, detail="gone"),
            DependencyOut(name="workers", ok=False, required=False, detail="none"),
        ],
    )
    collection = CollectionOut.model_construct(name="press", fingerprint="st-1")

    found = by_name(doctor.check_service(ready, [collection], "st-2"))

    assert [found[name].state for name in ("catalog", "vectors", "workers")] == [OK, FAIL, WARN]
    assert found["indexes"].state == FAIL
    assert "press" in found["indexes"].detail
    assert by_name(doctor.check_service(ready, [collection], "st-1"))["indexes"].state == OK
    (silent,) = doctor.check_service(None, [], "")
    assert silent.state == INFO


def test_what_our_processes_listen_on_and_talk_to(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    assert list(doctor.check_processes(state)) == []
    state.write_text(json.dumps({"processes": [{"name": "chroma", "pid": os.getpid()}]}))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        found = by_name(doctor.check_processes(state))

    assert (found["chroma address"].state, found["chroma address"].detail) == (OK, "127.0.0.1")
    assert found["egress"].state == OK


@pytest.mark.parametrize(
    ("settings", "state"),
    [
        ({"appendonly": "yes", "save": ""}, OK),
        ({"appendonly": "no", "save": "60 1"}, OK),
        ({"appendonly": "no", "save": ""}, INFO),
    ],
)
def test_whether_the_queue_is_on_disk(settings: dict[str, str], state: str) -> None:
    (check,) = doctor.check_redis(settings.__getitem__)

    assert check.state == state
    assert list(doctor.check_redis(None)) == []
