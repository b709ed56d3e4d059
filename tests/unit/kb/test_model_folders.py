"""Folders of models that are incomplete, damaged or unusual."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kb.adapters.chat_tokenizer import ChatTokenizer
from kb.adapters.ct2_generator import Ct2Generator
from kb.adapters.hashing_embedder import HashingEmbedder
from kb.adapters.hf_prompt_counter import HfPromptCounter
from kb.adapters.st_embedder import SentenceTransformersEmbedder
from kb.embedder_conversion import convert_embedder
from kb.errors import ConfigurationError, ModelCorruptError, ModelMissingError, QuestionTooLongError
from kb.generator_conversion import convert_generator
from kb.types import GenerationDelta, GenerationEnd, GenerationRequest, Message, Sampling
from tests.tiny_models import (
    ignore,
    make_embedder,
    make_generator,
    write_e5_file,
    write_gguf_file,
    write_unigram_tokenizer,
)


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stock")
    make_embedder(folder / "e")
    make_generator(folder / "g")
    return folder


@pytest.fixture
def embedder_dir(stock: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stock / "e" / "embedder", tmp_path / "embedder"))


@pytest.fixture
def generator_dir(stock: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stock / "g" / "generator", tmp_path / "generator"))


def open_embedder(path: Path) -> SentenceTransformersEmbedder:
    return SentenceTransformersEmbedder(path=path, device="cpu", batch_size=4)


def open_generator(path: Path, *, context_tokens: int = 256) -> Ct2Generator:
    return Ct2Generator(path=path, tokenizer_path=None, threads=0, context_tokens=context_tokens)


def change_json(path: Path, **values: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def request_for(text: str, sampling: Sampling) -> GenerationRequest:
    return GenerationRequest((Message("user", text),), text, (), "en", sampling)


# -- embedder


@pytest.mark.parametrize("name", ["config.json", "modules.json", "tokenizer.json", "model.safetensors"])
def test_an_incomplete_embedder_is_missing_and_its_folder_named(embedder_dir: Path, name: str) -> None:
    (embedder_dir / name).unlink()

    with pytest.raises(ModelMissingError, match="embedder"):
        open_embedder(embedder_dir)


def test_the_fingerprint_follows_content_not_place(embedder_dir: Path, stock: Path) -> None:
    original = open_embedder(stock / "e" / "embedder").fingerprint

    assert open_embedder(embedder_dir).fingerprint == original
    assert open_embedder(embedder_dir).fingerprint == original  # now from the remembered hashes

    (embedder_dir / "README.md").write_text("notes")
    assert open_embedder(embedder_dir).fingerprint == original


@pytest.mark.parametrize(
    "name", ["config_sentence_transformers.json", "1_Pooling/config.json", "tokenizer.json"]
)
def test_prompts_pooling_and_tokenizer_are_part_of_the_fingerprint(
    embedder_dir: Path, stock: Path, name: str
) -> None:
    with (embedder_dir / name).open("a") as stream:
        stream.write("\n")

    assert open_embedder(embedder_dir).fingerprint != open_embedder(stock / "e" / "embedder").fingerprint


def test_prompts_make_queries_and_passages_differ(embedder_dir: Path) -> None:
    embedder = open_embedder(embedder_dir)

    passage = embedder.embed_passages(["pump"])[0]
    prompted = embedder.embed_query("pump")
    (embedder_dir / "config_sentence_transformers.json").unlink()
    plain = open_embedder(embedder_dir)

    assert not np.allclose(passage, prompted, atol=1e-3)
    assert np.allclose(plain.embed_passages(["pump"])[0], plain.embed_query("pump"), atol=1e-5)
    assert plain.max_tokens > embedder.max_tokens


def test_the_window_comes_from_the_model_if_the_folder_does_not_say(embedder_dir: Path) -> None:
    (embedder_dir / "sentence_bert_config.json").unlink()
    change_json(embedder_dir / "tokenizer_config.json", model_max_length=100)
    (embedder_dir / "config_sentence_transformers.json").write_text("[]")

    assert open_embedder(embedder_dir).max_tokens == 98


@pytest.mark.parametrize(
    ("name", "content"),
    [("modules.json", "{damaged"), ("modules.json", '[{"no": "path"}]'), ("config.json", "{damaged")],
)
def test_a_damaged_description_is_corrupt(embedder_dir: Path, name: str, content: str) -> None:
    (embedder_dir / name).write_text(content)

    with pytest.raises(ModelCorruptError, match=name.replace(".", r"\.")):
        _ = open_embedder(embedder_dir).dimension


def test_an_embedder_that_hides_its_length_is_corrupt(embedder_dir: Path) -> None:
    change_json(embedder_dir / "config.json", hidden_size=None)
    (embedder_dir / "1_Pooling" / "config.json").write_text("{}")

    with pytest.raises(ModelCorruptError, match="length"):
        _ = open_embedder(embedder_dir).dimension


def test_damaged_weights_are_corrupt(embedder_dir: Path) -> None:
    (embedder_dir / "model.safetensors").write_bytes(b"\x08" + b"\0" * 40)

    with pytest.raises(ModelCorruptError, match="can't be loaded"):
        open_embedder(embedder_dir).embed_query("pump")


def test_a_length_that_the_weights_don_t_keep_is_refused(embedder_dir: Path) -> None:
    embedder = open_embedder(embedder_dir)
    change_json(embedder_dir / "1_Pooling" / "config.json", word_embedding_dimension=31)
    assert embedder.dimension == 31

    with pytest.raises(ConfigurationError, match="31"):
        embedder.embed_query("pump")


def test_a_damaged_tokenizer_is_corrupt(embedder_dir: Path) -> None:
    (embedder_dir / "tokenizer.json").write_text("{}")

    with pytest.raises(ModelCorruptError, match="not a tokenizer"):
        open_embedder(embedder_dir).count_tokens("pump")


def test_words_in_common_make_hashed_texts_near() -> None:
    embedder = HashingEmbedder()
    query = embedder.embed_query("液压油温度 E-0471")

    near, far = embedder.embed_passages(["E-0471 液压油温度过高", "the motor cable is loose"]) @ query

    assert near > 0.4 > far
    with pytest.raises(ValueError, match="at least 1"):
        HashingEmbedder(dimension=0)


# -- generator


@pytest.mark.parametrize("name", ["model.bin", "tokenizer.json"])
def test_an_incomplete_generator_is_missing(generator_dir: Path, name: str) -> None:
    (generator_dir / name).unlink()
    generator = open_generator(generator_dir)

    with pytest.raises(ModelMissingError, match=name.replace(".", r"\.")):
        generator.ping()
    with pytest.raises(ModelMissingError):
        next(generator.stream(request_for("hi", Sampling())))


def test_damaged_weights_of_the_generator_are_corrupt(generator_dir: Path) -> None:
    (generator_dir / "model.bin").write_bytes(b"damaged")

    with pytest.raises(ModelCorruptError, match="can't be loaded"):
        next(open_generator(generator_dir).stream(request_for("hi", Sampling())))


def test_a_prompt_that_leaves_no_room_is_refused(generator_dir: Path) -> None:
    generator = open_generator(generator_dir, context_tokens=64)

    with pytest.raises(QuestionTooLongError) as caught:
        next(generator.stream(request_for("x" * 64, Sampling())))

    assert caught.value.limit_tokens == 64


def test_an_answer_ends_at_its_limit_or_at_that_of_the_context(generator_dir: Path) -> None:
    generator = open_generator(generator_dir, context_tokens=64)

    short = list(generator.stream(request_for("hi", Sampling(max_tokens=3))))[-1]
    whole = list(generator.stream(request_for("hi", Sampling(max_tokens=500))))[-1]

    assert isinstance(short, GenerationEnd)
    assert isinstance(whole, GenerationEnd)
    assert short.completion_tokens <= 3
    assert whole.prompt_tokens + whole.completion_tokens <= 64


def write(generator: Ct2Generator, sampling: Sampling) -> tuple[str, GenerationEnd]:
    *deltas, end = generator.stream(request_for("hi", sampling))
    assert isinstance(end, GenerationEnd)
    return "".join(event.text for event in deltas if isinstance(event, GenerationDelta)), end


DRAWN = Sampling(max_tokens=40, temperature=1.0, seed=5)


def test_a_seed_makes_a_drawn_answer_repeatable(generator_dir: Path) -> None:
    generator = open_generator(generator_dir)

    first = write(generator, DRAWN)

    assert write(generator, DRAWN) == first
    assert write(generator, replace(DRAWN, seed=6)) != first


def test_a_stop_sequence_ends_the_answer_and_is_not_shown(generator_dir: Path) -> None:
    generator = open_generator(generator_dir)
    text, _ = write(generator, DRAWN)
    stop = text[len(text) // 2 : len(text) // 2 + 2]

    shown, end = write(generator, replace(DRAWN, stop=(stop,)))

    assert shown == text[: text.index(stop)]
    assert end.finish_reason == "stop"
    assert end.completion_tokens < DRAWN.max_tokens


def test_text_held_back_for_a_stop_sequence_is_shown_at_the_end(generator_dir: Path) -> None:
    generator = open_generator(generator_dir)
    text, _ = write(generator, DRAWN)

    shown, _ = write(generator, replace(DRAWN, stop=(f"{text[-1]}never",)))

    assert shown == text


def test_an_end_token_ends_the_answer(generator_dir: Path) -> None:
    text, _ = write(open_generator(generator_dir), DRAWN)
    character = text[len(text) // 2]
    index = ChatTokenizer(path=generator_dir).encode_text(character).ids[0]
    (generator_dir / "generation_config.json").write_text(json.dumps({"eos_token_id": index}))

    shown, end = write(open_generator(generator_dir), DRAWN)

    assert text.startswith(shown)
    assert character not in shown
    assert end.finish_reason == "stop"


def test_a_generator_without_a_name_is_called_by_its_folder(generator_dir: Path) -> None:
    change_json(generator_dir / "tokenizer_config.json", name_or_path="")

    assert open_generator(generator_dir).name == "generator"


# -- tokenizer and chat template


def test_the_template_may_lie_in_a_file_of_its_own(generator_dir: Path) -> None:
    messages = [Message("user", "hi")]
    expected = HfPromptCounter(path=generator_dir).count_messages(messages)
    config = json.loads((generator_dir / "tokenizer_config.json").read_text())
    template = config.pop("chat_template")
    (generator_dir / "tokenizer_config.json").write_text(json.dumps(config))

    (generator_dir / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    assert HfPromptCounter(path=generator_dir).count_messages(messages) == expected

    (generator_dir / "chat_template.jinja").write_text(template)
    assert HfPromptCounter(path=generator_dir).count_messages(messages) == expected

    for name in ("chat_template.json", "chat_template.jinja"):
        (generator_dir / name).unlink()
    with pytest.raises(ModelMissingError, match="no chat template"):
        HfPromptCounter(path=generator_dir).count_messages(messages)


def test_a_named_default_template_is_taken(generator_dir: Path) -> None:
    named = [{"name": "tools", "template": "x"}, {"name": "default", "template": "{{ bos_token }}hi"}]
    change_json(
        generator_dir / "tokenizer_config.json", chat_template=named, bos_token={"content": "<|im_start|>"}
    )

    assert HfPromptCounter(path=generator_dir).count_messages([Message("user", "x")]) == 3


def test_template_options_reach_the_template(generator_dir: Path) -> None:
    change_json(
        generator_dir / "tokenizer_config.json",
        chat_template="{% if enable_thinking is false %}a{% else %}bcd{% endif %}",
    )
    messages = [Message("user", "x")]

    assert HfPromptCounter(path=generator_dir).count_messages(messages) == 1
    assert HfPromptCounter(path=generator_dir, template_options={}).count_messages(messages) == 3


@pytest.mark.parametrize("template", ["{{ raise_exception('no system role') }}", "{% broken"])
def test_a_template_that_refuses_is_a_wrong_installation(generator_dir: Path, template: str) -> None:
    change_json(generator_dir / "tokenizer_config.json", chat_template=template)

    with pytest.raises(ConfigurationError, match="chat template"):
        HfPromptCounter(path=generator_dir).count_messages([Message("user", "x")])


@pytest.mark.parametrize("content", ["{damaged", "[]"])
def test_a_damaged_tokenizer_config_is_corrupt(generator_dir: Path, content: str) -> None:
    (generator_dir / "tokenizer_config.json").write_text(content)

    with pytest.raises(ModelCorruptError, match="tokenizer_config"):
        HfPromptCounter(path=generator_dir).count_messages([Message("user", "x")])


def test_control_tokens_found_only_after_normalisation_are_broken_too(generator_dir: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, normalizers

    tokenizer = Tokenizer.from_file(str(generator_dir / "tokenizer.json"))
    tokenizer.add_special_tokens([AddedToken("@@end", normalized=True, special=True)])
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.save(str(generator_dir / "tokenizer.json"))
    counter = HfPromptCounter(path=generator_dir)
    tokens = ChatTokenizer(path=generator_dir)

    harmless = counter.neutralise("stop @@END now")

    assert harmless == "stop @ @END now"
    assert not set(tokens.encode_text(harmless).ids) & set(tokens.added_tokens)


def test_a_normaliser_that_undoes_the_split_loses_the_token(generator_dir: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, normalizers

    tokenizer = Tokenizer.from_file(str(generator_dir / "tokenizer.json"))
    tokenizer.add_special_tokens([AddedToken("@@end", normalized=True, special=True)])
    tokenizer.normalizer = normalizers.Replace(" ", "")
    tokenizer.save(str(generator_dir / "tokenizer.json"))

    assert HfPromptCounter(path=generator_dir).neutralise("stop @@end now") == "stop ? now"


# -- conversion


def test_a_file_that_is_no_e5_file_is_corrupt(tmp_path: Path) -> None:
    write_unigram_tokenizer(tmp_path / "tokenizer.json")
    write_e5_file(tmp_path / "other.bin", magic=b"GGUF")
    write_e5_file(tmp_path / "short.bin")
    (tmp_path / "short.bin").write_bytes((tmp_path / "short.bin").read_bytes()[:5000])
    (tmp_path / "out").mkdir()

    for name in ("other.bin", "short.bin"):
        with pytest.raises(ModelCorruptError, match=name.replace(".", r"\.")):
            convert_embedder(tmp_path / name, tmp_path / "tokenizer.json", tmp_path / "out", progress=ignore)


def test_a_file_that_is_no_qwen_is_corrupt(tmp_path: Path) -> None:
    write_gguf_file(tmp_path / "llama.gguf", architecture="llama")
    (tmp_path / "damaged.gguf").write_bytes(b"damaged" * 10)
    (tmp_path / "out").mkdir()

    for name in ("llama.gguf", "damaged.gguf"):
        with pytest.raises(ModelCorruptError, match=name.replace(".", r"\.")):
            convert_generator(tmp_path / name, tmp_path / "out", name="x", progress=ignore)
