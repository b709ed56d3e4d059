"""What every Generator promises."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import pytest

from kb.adapters.ct2_generator import Ct2Generator
from kb.adapters.extractive_generator import ExtractiveGenerator
from kb.adapters.openai_generator import OpenAiGenerator
from kb.ports import Generator
from kb.types import (
    Chunk,
    GenerationDelta,
    GenerationEnd,
    GenerationEvent,
    GenerationRequest,
    Message,
    Passage,
    Sampling,
    Span,
)
from tests.runtime_server import serve_runtime
from tests.service import find_models_dir
from tests.tiny_models import make_generator

Opener = Callable[[Path], AbstractContextManager[Generator]]


@contextmanager
def _open_http(_tmp: Path) -> Iterator[Generator]:
    with serve_runtime() as runtime:
        generator = OpenAiGenerator(base_url=runtime.url, model=None, api_key=None, timeout_s=20)
        yield generator
        generator.close()


def _open_ct2(tmp: Path) -> AbstractContextManager[Generator]:
    path = make_generator(tmp / "tiny")
    return nullcontext(Ct2Generator(path=path, tokenizer_path=None, threads=1, context_tokens=256))


def _open_starter(_tmp: Path) -> AbstractContextManager[Generator]:
    path = find_models_dir() / "generator"
    return nullcontext(Ct2Generator(path=path, tokenizer_path=None, threads=1, context_tokens=1600))


GENERATORS: dict[str, Opener] = {
    "extractive": lambda _tmp: nullcontext(ExtractiveGenerator()),
    "http": _open_http,
    "ctranslate2": _open_ct2,
    "starter": _open_starter,
}


@pytest.fixture(scope="module", params=list(GENERATORS.values()), ids=list(GENERATORS))
def generator(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Generator]:
    opener: Opener = request.param
    with opener(tmp_path_factory.mktemp("generator")) as opened:
        yield opened


def build_request(
    sampling: Sampling | None = None, *, question: str = "E-0471 怎么处理？"
) -> GenerationRequest:
    text = "E-0471：油温超过 65 °C。清洗冷却器，检查风扇。"
    chunk = Chunk("c", "d", 1, 0, text, (Span(1, 0, len(text)),), language="zh")
    return GenerationRequest(
        messages=(
            Message("system", "只根据文档回答，一句话。"),
            Message("user", f"[1] {text}\n\n问题：{question}"),
        ),
        question=question,
        passages=(Passage(chunk, "manual.pdf", 1.0, 0),),
        language="zh",
        sampling=sampling or Sampling(max_tokens=12),
    )


def split(events: list[GenerationEvent]) -> tuple[list[str], GenerationEnd]:
    *deltas, end = events
    assert isinstance(end, GenerationEnd)
    texts = [event.text for event in deltas if isinstance(event, GenerationDelta)]
    assert len(texts) == len(deltas)
    return texts, end


def test_deltas_come_first_then_exactly_one_end(generator: Generator) -> None:
    texts, end = split(list(generator.stream(build_request())))

    assert "".join(texts).strip()
    assert all(texts)
    assert end.finish_reason in ("stop", "length")
    assert end.prompt_tokens >= 0
    assert end.completion_tokens >= 0


def test_the_same_greedy_request_gives_the_same_text(generator: Generator) -> None:
    first, _ = split(list(generator.stream(build_request())))
    second, _ = split(list(generator.stream(build_request())))

    assert "".join(first) == "".join(second)


def test_no_delta_holds_half_a_character(generator: Generator) -> None:
    for seed in range(3):
        sampling = Sampling(max_tokens=40, temperature=1.0, top_p=0.95, seed=seed)

        texts, _ = split(list(generator.stream(build_request(sampling))))

        assert "\ufffd" not in "".join(texts)
        assert "".join(texts).encode("utf-8")


def test_a_client_that_leaves_blocks_nobody(generator: Generator) -> None:
    stream = generator.stream(build_request())
    next(stream)
    stream.close()  # type: ignore[attr-defined]  # every implementation is a generator function

    unopened = generator.stream(build_request())
    del unopened

    assert split(list(generator.stream(build_request())))


def test_two_clients_at_once_both_get_their_answer(generator: Generator) -> None:
    expected, _ = split(list(generator.stream(build_request())))
    found: list[str] = []

    def ask() -> None:
        texts, _ = split(list(generator.stream(build_request())))
        found.append("".join(texts))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == ["".join(expected)] * 2


def test_a_stream_may_be_read_by_changing_threads(generator: Generator) -> None:
    stream = generator.stream(build_request())
    events: list[GenerationEvent] = []
    ended = False

    def advance() -> None:
        nonlocal ended
        for event in stream:
            events.append(event)
            return
        ended = True

    while not ended:
        thread = threading.Thread(target=advance)
        thread.start()
        thread.join()

    assert split(events)


def test_a_generator_says_who_it_is(generator: Generator) -> None:
    assert generator.name
    assert generator.mode in ("generated", "extractive")
    assert generator.get_context_limit() >= 256
    assert generator.ping()


def test_the_starter_generator_answers_from_the_passage(tmp_path: Path) -> None:
    question = "E-0471 出现时应该清洗什么？"
    with _open_starter(tmp_path) as generator:
        texts, end = split(list(generator.stream(build_request(Sampling(max_tokens=48), question=question))))

    assert generator.name == "Qwen2.5-Coder-0.5B-Instruct"
    assert "冷却器" in "".join(texts)
    assert end.finish_reason == "stop"
    assert end.prompt_tokens > 40
    assert 0 < end.completion_tokens < 48
