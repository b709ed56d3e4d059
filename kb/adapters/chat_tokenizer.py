"""The tokenizer and chat template of a model folder, without its weights."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kb.adapters.chat_markup import replace_lone_surrogates
from kb.errors import ConfigurationError, ModelCorruptError, ModelMissingError
from kb.types import Message

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

_SPECIAL_TOKEN_KEYS = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)


class ChatTokenizer:
    """Renders messages as the model's runtime does and turns them into token ids.

    Files are read at the first use; all methods may be called from several threads.
    """

    def __init__(self, *, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._loaded: Tokenizer | None = None

    @property
    def backend(self) -> Tokenizer:
        """The tokenizer of `tokenizer.json`; raises `ModelMissingError` or `ModelCorruptError`."""
        with self._lock:
            if self._loaded is None:
                self._loaded = load_tokenizer(self._path)
            return self._loaded

    @cached_property
    def added_tokens(self) -> Mapping[int, str]:
        """Id and text of every token that is matched in text before ordinary tokenisation.

        Tokens of white space only are left out: they are text, not markup.
        """
        decoder = self.backend.get_added_tokens_decoder()
        return {index: token.content for index, token in decoder.items() if token.content.strip()}

    @cached_property
    def end_ids(self) -> frozenset[int]:
        """Ids that end an answer, from `generation_config.json` and the tokenizer's end token."""
        found = _read_json(self._path / "generation_config.json").get("eos_token_id", [])
        ids = set(found if isinstance(found, list) else [found])
        ids.add(self.backend.token_to_id(self._special_tokens.get("eos_token", "")))
        return frozenset(index for index in ids if isinstance(index, int))

    def encode_text(self, text: str) -> Encoding:
        """Return the tokens of `text` alone; markup in it becomes control tokens."""
        return self.backend.encode(replace_lone_surrogates(text), add_special_tokens=False)

    def encode_messages(self, messages: Sequence[Message], options: Mapping[str, object]) -> list[int]:
        """Return the ids of the rendered chat template, generation prompt included.

        `options` are variables of the template, such as `enable_thinking`. Raises
        `ConfigurationError` if the template does not accept these messages.
        """
        from jinja2 import TemplateError
        from transformers.utils.chat_template_utils import render_jinja_template

        conversation = [{"role": message.role, "content": message.content} for message in messages]
        try:
            rendered, _ = render_jinja_template(
                [conversation],
                chat_template=self._template,
                add_generation_prompt=True,
                **{**self._special_tokens, **options},
            )
        except TemplateError as error:
            raise ConfigurationError(
                f"the chat template in {str(self._path)!r} refused the messages: {error}",
                next_step="Use the chat template that the model was published with.",
            ) from error
        return list(self.encode_text(rendered[0]).ids)

    @cached_property
    def _config(self) -> dict[str, Any]:
        return _read_json(self._path / "tokenizer_config.json")

    @cached_property
    def _special_tokens(self) -> dict[str, str]:
        tokens = {}
        for key in _SPECIAL_TOKEN_KEYS:
            value = self._config.get(key)
            if isinstance(value, dict):
                value = value.get("content")
            if isinstance(value, str):
                tokens[key] = value
        return tokens

    @cached_property
    def _template(self) -> str:
        separate = self._path / "chat_template.jinja"
        if separate.is_file():
            return separate.read_text(encoding="utf-8")
        template = self._config.get("chat_template")
        if template is None:
            template = _read_json(self._path / "chat_template.json").get("chat_template")
        if isinstance(template, list):
            template = next((item["template"] for item in template if item.get("name") == "default"), None)
        if not isinstance(template, str):
            raise ModelMissingError(
                f"no chat template in {str(self._path)!r}",
                next_step="Copy chat_template.jinja or tokenizer_config.json of the model into the folder.",
            )
        return template


def load_tokenizer(folder: Path) -> Tokenizer:
    """Return the tokenizer of `folder`, which neither cuts nor pads.

    Raises `ModelMissingError` or `ModelCorruptError`.
    """
    from tokenizers import Tokenizer

    file = folder / "tokenizer.json"
    if not file.is_file():
        raise ModelMissingError(f"no tokenizer at {str(file)!r}")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing narrower
        raise ModelCorruptError(f"{str(file)!r} is not a tokenizer: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _read_json(path: Path) -> dict[str, Any]:
    """Return the object in `path`, an empty one if the file is absent."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ModelCorruptError(f"{str(path)!r} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelCorruptError(f"{str(path)!r} does not hold a JSON object")
    return content
