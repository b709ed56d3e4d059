"""Writes an embedder of the size of multilingual-e5-small with random weights, for measurements of time.

    python -m benchmarks.gpu.random_embedder TOKENIZER_JSON TARGET

What it finds means nothing; how long it takes is that of the real one.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

_HIDDEN, _LAYERS, _VOCABULARY, _POSITIONS = 384, 12, 250_037, 512


def main() -> None:
    """Write the folder."""
    import torch
    from safetensors.torch import save_file
    from transformers import BertConfig, BertModel

    tokenizer, target = Path(sys.argv[1]), Path(sys.argv[2])
    (target / "1_Pooling").mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=_VOCABULARY,
        hidden_size=_HIDDEN,
        num_hidden_layers=_LAYERS,
        num_attention_heads=12,
        intermediate_size=4 * _HIDDEN,
        max_position_embeddings=_POSITIONS,
        type_vocab_size=2,
        pad_token_id=1,
    )
    model = BertModel(config, add_pooling_layer=False).half()
    save_file(
        {name: tensor.contiguous() for name, tensor in model.state_dict().items()},
        target / "model.safetensors",
        metadata={"format": "pt"},
    )
    described = config.to_dict() | {"architectures": ["BertModel"], "dtype": "float16"}
    _write(target / "config.json", described)
    kinds = (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for index, (path, kind) in enumerate(kinds)
    ]
    _write(target / "modules.json", modules)
    _write(
        target / "1_Pooling" / "config.json",
        {"word_embedding_dimension": _HIDDEN, "pooling_mode_mean_tokens": True},
    )
    _write(target / "sentence_bert_config.json", {"max_seq_length": _POSITIONS, "do_lower_case": False})
    _write(
        target / "config_sentence_transformers.json",
        {"prompts": {"query": "query: ", "passage": "passage: "}},
    )
    marks = {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "pad_token": "<pad>",
        "cls_token": "<s>",
    }
    _write(
        target / "tokenizer_config.json",
        marks
        | {
            "sep_token": "</s>",
            "mask_token": "<mask>",
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": _POSITIONS,
        },
    )
    shutil.copyfile(tokenizer, target / "tokenizer.json")


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


if __name__ == "__main__":
    main()
