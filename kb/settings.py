"""Settings: the only reader of the environment, validated at start."""

from __future__ import annotations

import hashlib
import os
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from kb.errors import SettingsError

ENV_PREFIX = "KB_"
CONFIG_VARIABLE = "KB_CONFIG"


class Settings(BaseSettings):
    """Every setting, from `KB_*` variables first, then from the TOML file named by `KB_CONFIG`.

    In the TOML file the keys are the field names below, at top level.
    """

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True, extra="forbid")

    # -- where things live
    data_dir: Path = Field(Path("data"), description="Folder for files, indexes, logs and sockets.")
    models_dir: Path | None = Field(
        None, description="Folder of the starter models; default is `models` in the data folder."
    )
    database_url: str | None = Field(
        None,
        description="SQLAlchemy URL of the catalog; default is a SQLite file in the data folder.",
    )
    redis_url: str | None = Field(
        None, description="URL of the Redis-protocol server; a private one is started if unset."
    )
    chroma_url: str | None = Field(
        None, description="URL of the Chroma server; a private one is started if unset."
    )

    # -- the service
    api_host: str = Field(
        "127.0.0.1",
        description="Address the API listens on; only this machine's own while nobody has a key.",
    )
    api_port: int = Field(8000, ge=1, le=65535, description="Port the API listens on.")
    api_url: str | None = Field(
        None, description="Where the kb command finds the API; default is host and port above."
    )
    api_key: str | None = Field(
        None,
        min_length=16,
        description="An administrator's key beside those of `kb keys`; the kb command sends it.",
    )
    log_format: Literal["json", "console"] = Field("json", description="Shape of log lines.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severity that is logged."
    )

    # -- models
    embedder_path: Path | None = Field(
        None, description="sentence-transformers folder; default is the starter embedder."
    )
    embedder_device: str = Field("cpu", description="torch device of the embedder.")
    reranker: Path | None = Field(
        None,
        description="Folder of a sentence-transformers CrossEncoder that orders the best passages anew; "
        "none if unset.",
    )
    embedder_batch_size: int = Field(16, ge=1, description="Texts embedded at once.")
    generator: Literal["auto", "http", "local", "extractive"] = Field(
        "auto",
        description="Who writes answers: an HTTP runtime, the starter model on the CPU, or quotes only. "
        "auto takes http if generator_url is set, else local if its weights are there, else extractive.",
    )
    generator_url: str | None = Field(
        None, description="Base URL of an OpenAI-style runtime, such as http://127.0.0.1:30000/v1."
    )
    generator_model: str | None = Field(
        None, description="Model name sent to the runtime; default is the first it lists."
    )
    generator_api_key: str | None = Field(None, description="Key sent to the runtime.")
    generator_path: Path | None = Field(
        None, description="CTranslate2 folder of the local model; default is the starter model."
    )
    generator_tokenizer_path: Path | None = Field(
        None, description="Folder with the tokenizer and chat template of the generator."
    )
    generator_timeout_s: float = Field(
        120.0, gt=0, description="Longest silence of the runtime before it counts as down."
    )
    generator_threads: int = Field(0, ge=0, description="CPU threads of the local model; 0 is all.")

    runtime_python: Path | None = Field(
        None,
        description="Python of the environment with SGLang for `kb model serve`; default is the one that "
        "`make gpu` makes, `.venv-gpu/bin/python`.",
    )

    # -- ingestion
    max_upload_bytes: int = Field(512 * 1024 * 1024, ge=1, description="Largest file accepted.")
    max_pages: int = Field(5000, ge=1, description="Most pages of a document.")
    parse_timeout_s: float = Field(
        900.0,
        gt=0,
        description="Longest parse of a document without pages, or of 64 pages, 8 if they need OCR.",
    )
    page_timeout_s: float = Field(
        120.0, gt=0, description="Longest reading of one page; one that takes longer is left out."
    )
    max_text_bytes: int = Field(64 * 1024**2, ge=1024, description="Most text of a document, in UTF-8.")
    parse_cache_bytes: int = Field(
        2 * 1024**3,
        ge=0,
        description="Disk space for pages that were read, so that they are not read again after a stop.",
    )
    parse_memory_bytes: int = Field(
        2 * 1024**3, ge=256 * 1024**2, description="Memory limit of the parser's process."
    )
    max_attachments: int = Field(
        100, ge=0, description="Most attached or embedded files that an upload brings along, at all levels."
    )
    max_attachment_bytes: int = Field(
        64 * 1024**2, ge=0, description="Largest attached or embedded file that is read."
    )
    max_attachments_bytes: int = Field(
        512 * 1024**2, ge=0, description="Most bytes of all files that an upload brings along."
    )
    attachment_depth: int = Field(
        3, ge=0, le=10, description="Levels of attachments that are read: 1 is what is attached to uploads."
    )
    ocr: bool = Field(True, description="Read pages without text by OCR.")
    secrets_dir: Path | None = Field(
        None,
        description="Folder in memory (tmpfs), shared by API and workers, where passwords of documents "
        "wait for the worker; default is a private folder in /dev/shm.",
    )
    chunk_tokens: int = Field(320, ge=32, description="Largest chunk in the embedder's tokens.")
    chunk_overlap_tokens: int = Field(48, ge=0, description="Tokens repeated between chunks.")
    job_max_attempts: int = Field(3, ge=1, description="Runs of a job before it is failed.")
    job_lease_s: float = Field(30.0, ge=5, description="Silence after which a worker counts as dead.")
    worker_concurrency: int = Field(1, ge=1, description="Documents ingested at once by a worker.")

    # -- answers
    retrieval_candidates: int = Field(40, ge=1, description="Chunks taken from each index.")
    top_k: int = Field(8, ge=1, le=50, description="Passages kept for an answer.")
    evidence_threshold: float = Field(
        0.5, ge=0, le=1, description="Least evidence score for an answer; below it, a refusal."
    )
    context_tokens: int | None = Field(
        None,
        ge=256,
        description="Tokens for prompt and answer; default 1600 for the local model, else the "
        "runtime's limit, at most 8192.",
    )
    on_unsupported: Literal["drop", "mark", "refuse"] = Field(
        "drop",
        description="What becomes of a sentence of the model that no passage supports: left out, shown with a "
        "mark, or the whole answer refused (then nothing is sent before all is checked).",
    )
    receipts: bool = Field(
        True,
        description="Keep what each answer was made from, its question and text included, in the catalog.",
    )
    receipt_days: int = Field(30, ge=1, description="Days after which a receipt is deleted.")
    answer_tokens: int = Field(256, ge=16, description="Most tokens of an answer.")

    @field_validator("api_key", "redis_url", "chroma_url", "database_url", "generator_url", mode="before")
    @classmethod
    def _empty_is_unset(cls, value: object) -> object:
        return None if value == "" else value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Order of sources: arguments, environment, TOML file."""
        config = os.environ.get(CONFIG_VARIABLE)
        sources: list[PydanticBaseSettingsSource] = [init_settings, env_settings]
        if config:
            sources.append(TomlConfigSettingsSource(settings_cls, toml_file=Path(config)))
        return tuple(sources)

    # -- derived places
    @property
    def resolved_models_dir(self) -> Path:
        """Folder of the starter models."""
        return self.models_dir or self.data_dir / "models"

    @property
    def resolved_secrets_dir(self) -> Path:
        """Folder of the passwords; one per user and data folder."""
        if self.secrets_dir is not None:
            return self.secrets_dir
        place = hashlib.sha256(str(self.data_dir.absolute()).encode()).hexdigest()[:12]
        return Path("/dev/shm") / f"kb-{os.getuid()}-{place}"  # noqa: S108 - mode 700, checked before use

    @property
    def resolved_database_url(self) -> str:
        """SQLAlchemy URL of the catalog."""
        return self.database_url or f"sqlite:///{(self.data_dir / 'catalog.sqlite').absolute()}"

    @property
    def resolved_api_url(self) -> str:
        """Base URL of the API for clients on this machine."""
        return (self.api_url or f"http://{_reachable(self.api_host)}:{self.api_port}").rstrip("/")


def _reachable(host: str) -> str:
    """Return an address that reaches a server bound to `host`."""
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, never bound
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def load_settings(**overrides: Any) -> Settings:
    """Read and check all settings; raises `SettingsError` that names each wrong one."""
    known = {f"{ENV_PREFIX}{name.upper()}" for name in Settings.model_fields} | {CONFIG_VARIABLE}
    unknown = sorted(v for v in os.environ if v.startswith(ENV_PREFIX) and v not in known)
    if unknown:
        raise SettingsError(
            f"unknown setting {', '.join(unknown)}",
            next_step="Check the spelling against the list in docs/settings.md.",
        )
    config = os.environ.get(CONFIG_VARIABLE)
    if config and not Path(config).is_file():
        raise SettingsError(
            f"{CONFIG_VARIABLE} names {config!r}, which is not a file",
            next_step="Create the file, or unset the variable.",
        )
    try:
        return Settings(**overrides)
    except ValidationError as error:
        lines = [
            f"{ENV_PREFIX}{'.'.join(str(part) for part in item['loc']).upper()}: "
            + ("unknown setting" if item["type"] == "extra_forbidden" else item["msg"])
            for item in error.errors(include_url=False, include_input=False)
        ]
        raise SettingsError(
            "wrong settings: " + "; ".join(lines),
            next_step="Correct them in the environment or in the TOML file.",
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{config!r} is not valid TOML: {error}", next_step="Correct the file.") from None
