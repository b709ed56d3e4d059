"""The runtime's care, with an executable that starts, dies and answers like SGLang."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from kb.embedded import PortBusyError
from kb.runtime.cards import find_card
from kb.runtime.client import RuntimeClient
from kb.runtime.deaths import Relief, RuntimeStartError, StartDeath, find_death
from kb.runtime.launch import Launch, build_environment
from kb.runtime.plan import Wish, make_plan
from kb.runtime.server import RuntimeServer, StepDown, step_down
from kb.runtime.shape import read_shape
from kb.types import Message
from tests.checkpoints import write_checkpoint
from tests.service import ROOT, find_free_port, wait_until

STAND_IN = ROOT / "tests" / "stand_in_runtime.py"
Open = Callable[..., RuntimeServer]


@pytest.fixture
def open_server(tmp_path: Path) -> Iterator[Open]:
    """Makes servers of a tiny model on a card with 12 GB; ends them."""
    opened: list[RuntimeServer] = []
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{STAND_IN}" "$@"\n', "utf-8")
    python.chmod(0o755)

    def open_one(*, extra: tuple[str, ...] = (), **script: Any) -> RuntimeServer:
        model = write_checkpoint(tmp_path / "tiny")
        (model / "stand_in.json").write_text(json.dumps(script), "utf-8")
        shape = read_shape(json.loads((model / "config.json").read_text("utf-8")), weight_bytes=1_000_000)
        made = make_plan(shape, find_card("RTX 3060 12GB"), Wish(context_tokens=4096, concurrency=16))
        launch = Launch(python=python, model=model, port=find_free_port(), plan=made, extra=extra)
        opened.append(
            RuntimeServer(
                launch, tmp_path / "runtime.log", start_limit_s=60, poll_interval_s=0.05, backoff_s=0.05
            )
        )
        return opened[-1]

    yield open_one
    for server in opened:
        if hasattr(server, "supervisor"):
            server.stop()


def count(server: RuntimeServer, text: str) -> int:
    with RuntimeClient(server.launch.url) as client:
        return client.count_prompt((Message("user", text),), options={"enable_thinking": False})


def test_it_serves_the_planned_context_and_nothing_is_left_behind(open_server: Open, tmp_path: Path) -> None:
    helper_file = tmp_path / "helper"
    server = open_server(helper_file=str(helper_file))

    server.start()

    with RuntimeClient(server.launch.url) as client:
        assert client.list_models()[0]["max_model_len"] == 4096
        assert client.is_healthy()
    helper = psutil.Process(int(helper_file.read_text()))
    server.stop()
    wait_until(
        lambda: not helper.is_running() or helper.status() == psutil.STATUS_ZOMBIE, what="the helper ended"
    )
    with RuntimeClient(server.launch.url) as client:
        assert not client.is_healthy()


def test_memory_that_runs_out_at_the_graphs_is_one_step_down(open_server: Open) -> None:
    server = open_server(largest_graph=4, extra=("--cuda-graph-max-bs-decode", "16"))
    seen: list[StepDown] = []
    server.on_step_down = seen.append

    server.start()

    (step,) = seen
    assert step.death.code == "memory_at_graphs"
    assert step.after.plan.tuning.graph_batch <= 4
    assert step.after.plan.context_tokens <= step.before.plan.context_tokens
    assert step.after.extra == ()
    assert "memory ran out while decode graphs were captured" in step.text


def test_a_second_out_of_memory_is_told_with_the_way_out(open_server: Open) -> None:
    server = open_server(largest_graph=0)

    with pytest.raises(RuntimeStartError) as caught:
        server.start()

    assert caught.value.death.code == "memory_at_graphs"
    assert len(server.steps) == 1
    assert "runtime.log" in caught.value.next_step


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("ModuleNotFoundError: No module named 'sglang'", "runtime_missing"),
        ("OSError: libcuda.so.1: cannot open shared object file", "no_gpu"),
        (
            "ValueError: Model architectures ['FooForCausalLM'] are not supported for now",
            "architecture_unknown",
        ),
        ("ValueError: quantization method awq is not supported for the current GPU", "wrong_quantization"),
    ],
)
def test_a_death_without_a_remedy_is_explained_at_once(open_server: Open, said: str, code: str) -> None:
    server = open_server(dies_with=said)

    with pytest.raises(RuntimeStartError) as caught:
        server.start()

    assert caught.value.death.code == code
    assert server.steps == []


def test_a_busy_port_is_told_before_anything_starts(open_server: Open) -> None:
    first = open_server()
    first.start()
    second = open_server()
    second.launch = first.launch

    with pytest.raises(PortBusyError):
        second.start()


def test_a_runtime_that_is_killed_is_started_again(open_server: Open) -> None:
    server = open_server()
    server.start()
    pid = server.supervisor.get_reports()[0].pid
    assert pid is not None

    psutil.Process(pid).send_signal(signal.SIGKILL)

    def is_back() -> bool:
        server.supervisor.poll()
        return server.supervisor.get_reports()[0].pid != pid and count_or_none(server) is not None

    wait_until(is_back, what="the runtime is back")


def count_or_none(server: RuntimeServer) -> int | None:
    with RuntimeClient(server.launch.url, timeout_s=1) as client:
        return count(server, "x") if client.is_healthy() else None


@pytest.mark.parametrize(
    ("log", "outcome", "code", "relief"),
    [
        (
            "Not enough memory. Please try to increase --mem-fraction-static",
            "",
            "pool_too_small",
            Relief.POOL,
        ),
        ("torch.OutOfMemoryError: CUDA out of memory.", "", "out_of_memory", Relief.MEMORY),
        ("[Errno 98] address already in use", "", "port_busy", Relief.NONE),
        ("safetensors_rust.SafetensorError: HeaderTooLarge", "", "weights_damaged", Relief.NONE),
        ("nothing special", "was killed by SIGKILL", "killed", Relief.NONE),
        ("nothing special", "ended with code 3", "unknown", Relief.NONE),
    ],
)
def test_logs_name_the_death(log: str, outcome: str, code: str, relief: Relief) -> None:
    death = find_death(log, outcome=outcome)

    assert (death.code, death.relief) == (code, relief)
    assert death.next_step


def test_no_relief_is_no_second_start(open_server: Open) -> None:
    server = open_server()

    assert step_down(server.launch, StartDeath("x", "x", "x")) is None


def test_the_runtime_gets_no_packages_and_no_settings_of_ours() -> None:
    outer = {"PYTHONPATH": "/ours", "KB_API_KEY": "secret", "PATH": "/bin", "HF_HUB_OFFLINE": "0"}

    made = build_environment(outer)

    assert "PYTHONPATH" not in made
    assert "KB_API_KEY" not in made
    assert (made["PATH"], made["HF_HUB_OFFLINE"]) == ("/bin", "1")
