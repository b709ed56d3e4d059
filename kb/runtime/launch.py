"""The command line and environment of the runtime."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kb.errors import ConfigurationError
from kb.runtime.flags import Flag, choose_flags, to_words
from kb.runtime.lora import Adapter
from kb.runtime.plan import MemoryPlan

DEFAULT_ENVIRONMENT = Path(".venv-gpu")
_DROPPED = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONSTARTUP")
"""Variables of this program's own environment that would mix its packages into the runtime's."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How the runtime is started."""

    python: Path
    model: Path
    port: int
    plan: MemoryPlan
    host: str = "127.0.0.1"
    name: str = ""
    adapters: tuple[Adapter, ...] = ()
    extra: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        """Where the runtime answers."""
        return f"http://{self.host}:{self.port}"

    @property
    def flags(self) -> list[Flag]:
        """The options with their reasons; what stands in `extra` is left out."""
        flags = choose_flags(self.plan)
        if self.adapters:
            flags += _choose_lora_flags(self.adapters)
        given = {word.partition("=")[0] for word in self.extra if word.startswith("--")}
        return [flag for flag in flags if flag.name not in given]

    @property
    def command(self) -> tuple[str, ...]:
        """The whole command line."""
        return (
            *(str(self.python), "-m", "sglang.launch_server"),
            *("--model-path", str(self.model), "--served-model-name", self.name or self.model.name),
            *("--host", self.host, "--port", str(self.port)),
            *to_words(self.flags),
            *self.extra,
        )


def build_environment(outer: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables for the runtime: its own packages only, and nothing off this machine."""
    kept = {
        name: value
        for name, value in (os.environ if outer is None else outer).items()
        if name not in _DROPPED and not name.startswith("KB_")
    }
    return kept | {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "DO_NOT_TRACK": "1",
        "PYTHONUNBUFFERED": "1",
    }


def find_python(configured: Path | None) -> Path:
    """Return the Python that has the runtime; raises `ConfigurationError` when it is not there."""
    python = configured or DEFAULT_ENVIRONMENT / "bin" / "python"
    if not python.is_file():
        raise ConfigurationError(
            f"there is no runtime environment at {str(python)!r}",
            next_step="Run `make gpu`, or point KB_RUNTIME_PYTHON at the Python that has sglang.",
        )
    return python.absolute()


def _choose_lora_flags(adapters: Sequence[Adapter]) -> list[Flag]:
    rank = max(adapter.rank for adapter in adapters)
    modules = sorted({module for adapter in adapters for module in adapter.modules})
    named = [f"{adapter.name}={adapter.path.absolute()}" for adapter in adapters]
    return [
        Flag("--enable-lora", "", "adapters were asked for"),
        Flag("--max-lora-rank", str(rank), "the largest rank among them; larger ones can't be loaded later"),
        _words_flag("--lora-target-modules", modules, "what they change"),
        _words_flag("--lora-paths", named, "loaded at start"),
    ]


def _words_flag(name: str, values: Sequence[str], reason: str) -> Flag:
    return Flag(name, "\n".join(values), reason)
