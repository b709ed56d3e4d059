"""What `kb doctor` looks at: the machine, its cards, the models, the runtime, and what runs for the service."""

from __future__ import annotations

import ipaddress
import json
import resource
import shutil
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import psutil

from kb.errors import KbError
from kb.models import ModelState, get_status
from kb.ports import PromptCounter
from kb.runtime.checks import FAIL, INFO, OK, WARN, Check
from kb.runtime.client import RuntimeClient
from kb.runtime.nvidia import Gpu, GpuProcess
from kb.schemas import CollectionOut, ReadyOut
from kb.types import Message

_GB = 1_000_000_000
_LEAST_DISK, _SPARE_DISK = 1 * _GB, 10 * _GB
_LEAST_MEMORY = 3 * _GB
_LEAST_FILES = 4096
_FULL_LINK = 16
_BORN = datetime(2026, 1, 1, tzinfo=UTC)
"""No clock that is right shows an earlier time."""

_PROMPTS: tuple[tuple[Message, ...], ...] = (
    (Message("user", "E-0471?"),),
    (Message("system", "只根据文档回答。"), Message("user", "液压站压力波动，伴随高频啸叫，怎么处理？")),
    (
        Message("user", "What does F30001 mean?"),
        Message("assistant", "Overcurrent.[1]"),
        Message("user", "And the remedy? 3·10⁻⁶ Ω ½ 😀"),
    ),
    (Message("user", "a\tb\n\n  c" * 50),),
)


def check_machine(data_dir: Path, *, now: datetime) -> Iterator[Check]:
    """Yield disk, memory, open files and clock."""
    place = next(path for path in (data_dir, *data_dir.absolute().parents) if path.exists())
    free = shutil.disk_usage(place).free
    detail = f"{free / _GB:,.1f} GB free for {str(data_dir)!r}"
    if free < _SPARE_DISK:
        yield Check("disk", FAIL if free < _LEAST_DISK else WARN, detail, "Free space, or move KB_DATA_DIR.")
    else:
        yield Check("disk", OK, detail)
    memory = psutil.virtual_memory()
    detail = f"{memory.available / _GB:,.1f} of {memory.total / _GB:,.1f} GB available"
    if memory.available < _LEAST_MEMORY:
        yield Check(
            "memory", WARN, detail, "The service takes about 3 GB: end other programs, or add memory."
        )
    else:
        yield Check("memory", OK, detail)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < _LEAST_FILES:
        yield Check(
            "open files", WARN, f"at most {hard:,}", "Raise it: LimitNOFILE in a unit, or `ulimit -n`."
        )
    else:
        yield Check("open files", OK, f"{soft:,}, up to {hard:,}")
    newest = _find_newest(data_dir)
    if now < _BORN or (newest is not None and (newest - now).total_seconds() > 60):
        yield Check(
            "clock", FAIL, f"{now:%Y-%m-%d %H:%M} UTC is wrong", "Set the clock; leases depend on it."
        )
    else:
        yield Check("clock", OK, f"{now:%Y-%m-%d %H:%M} UTC")


def check_gpus(gpus: Sequence[Gpu] | None, users: Sequence[GpuProcess]) -> Iterator[Check]:
    """Yield driver, memory and its users, link, and what slows each card."""
    if gpus is None:
        yield Check(
            "card",
            INFO,
            "no NVIDIA driver answers: answers come from the CPU",
            "If there is a card, install its driver until `nvidia-smi` shows it.",
        )
        return
    for gpu in gpus:
        name = f"card {gpu.index}"
        capability = ".".join(map(str, gpu.card.capability))
        yield Check(name, OK, f"{gpu.card.name}, compute capability {capability}, driver {gpu.driver}")
        held = [user for user in users if user.gpu_uuid == gpu.uuid]
        by = ", ".join(f"{Path(user.name).name} ({user.pid}: {user.used_mib or '?'} MiB)" for user in held)
        yield Check(
            f"{name} memory",
            OK,
            f"{gpu.free_mib:,} of {gpu.card.memory_mib:,} MiB free" + (f"; used by {by}" if by else ""),
        )
        if gpu.link_width is not None:
            link = f"PCIe {gpu.link_generation or '?'} x{gpu.link_width}"
            slow = gpu.link_width < _FULL_LINK
            fix = "It slows loading and several cards together: use the slot with all lanes." if slow else ""
            yield Check(f"{name} link", WARN if slow else OK, link + (", slow" if slow else ""), fix)
        if gpu.ecc_errors:
            yield Check(
                f"{name} errors",
                FAIL,
                f"{gpu.ecc_errors} uncorrected memory errors",
                "Have the card checked.",
            )
        if gpu.throttled:
            yield Check(
                f"{name} speed",
                WARN,
                f"slowed down: {', '.join(gpu.throttled)}, {gpu.temperature_c} °C",
                "Improve its cooling or power supply.",
            )


def check_models(models_dir: Path, *, embedder: Path | None, tokenizer: Path | None) -> Iterator[Check]:
    """Yield the starter models, or the folders that the settings name instead."""
    for status in get_status(models_dir):
        own = embedder if status.role == "embedder" else tokenizer
        if own is not None:
            there = own.is_dir()
            fix = "" if there else "Correct the setting that names the folder."
            yield Check(
                status.role, OK if there else FAIL, f"{str(own)!r}" + ("" if there else " is not there"), fix
            )
        elif status.state is ModelState.READY:
            yield Check(status.role, OK, f"{status.name}, {status.size_bytes / _GB:.2f} GB")
        else:
            needed = status.role == "embedder"
            yield Check(
                status.role,
                FAIL if needed or status.state is ModelState.DAMAGED else INFO,
                f"{status.name} is {status.state}",
                "Run `kb models pull`.",
            )


def check_runtime(
    url: str | None, counter: PromptCounter | None, *, context_tokens: int | None
) -> Iterator[Check]:
    """Yield whether the generator's runtime answers, its true limit, and whether both count tokens alike."""
    if url is None:
        yield Check("runtime", INFO, "none is set: the starter model or quotes answer")
        return
    with RuntimeClient(url, timeout_s=10) as client:
        try:
            models = client.list_models()
            limit = int(models[0].get("max_model_len") or 0) if models else 0
            pool = _find_pool(client)
        except KbError as error:
            yield Check(
                "runtime", FAIL, error.message, "Start it with `kb model serve`, or correct KB_GENERATOR_URL."
            )
            return
        true_limit = min(size for size in (limit, pool) if size) if limit or pool else 0
        yield Check(
            "runtime", OK, f"{models[0]['id'] if models else '?'}, {true_limit:,} tokens in one request"
        )
        if context_tokens and true_limit and context_tokens > true_limit:
            yield Check(
                "context",
                WARN,
                f"KB_CONTEXT_TOKENS is {context_tokens:,}; {true_limit:,} are used",
                "Lower it, or start the runtime with a longer context.",
            )
        if counter is not None:
            yield _compare_counts(client, counter)


def check_service(
    ready: ReadyOut | None, collections: Sequence[CollectionOut], fingerprint: str
) -> Iterator[Check]:
    """Yield the parts of the running service, and whether its indexes belong to this embedder."""
    if ready is None:
        yield Check(
            "service", INFO, "does not answer", "Start it with `kb up` to have its parts checked, too."
        )
        return
    for part in ready.dependencies:
        state = OK if part.ok else FAIL if part.required else WARN
        yield Check(part.name, state, part.detail, "" if part.ok else "See its log in the data folder.")
    foreign = [
        item.name for item in collections if item.fingerprint and fingerprint not in ("", item.fingerprint)
    ]
    if foreign:
        yield Check(
            "indexes",
            FAIL,
            f"made by another embedder: {', '.join(foreign)}",
            "Set KB_EMBEDDER_PATH back, or ingest the documents into new collections.",
        )
    elif collections:
        yield Check("indexes", OK, f"{len(collections)} collections belong to this embedder")


def check_processes(state_file: Path) -> Iterator[Check]:
    """Yield who can reach the stores, and whether our processes talk to anyone outside."""
    try:
        state = json.loads(state_file.read_text("utf-8"))
        pids = {entry["name"]: int(entry["pid"]) for entry in state["processes"]}
    except (OSError, ValueError, KeyError):
        return
    chroma = list(_iter_connections(pids.get("chroma"), listening=True))
    if chroma:
        exposed = [address for address in chroma if not _is_loopback(address)]
        fix = "Chroma has no password: let it listen on 127.0.0.1." if exposed else ""
        yield Check("chroma address", FAIL if exposed else OK, ", ".join(sorted(set(chroma))), fix)
    outside = sorted(
        {
            f"{name} → {address}"
            for name, pid in pids.items()
            for address in _iter_connections(pid, listening=False)
            if _is_public(address)
        }
    )
    if outside:
        yield Check(
            "egress", FAIL, "; ".join(outside), "Nothing of the service needs the Internet: report this."
        )
    else:
        yield Check("egress", OK, "no process of the service talks to an address outside")


def check_redis(read_setting: Callable[[str], str] | None) -> Iterator[Check]:
    """Yield whether the queue outlives a restart of its server; `read_setting` is CONFIG GET."""
    if read_setting is None:
        return
    append, save = read_setting("appendonly"), read_setting("save")
    if append == "yes" or save:
        yield Check("queue on disk", OK, "append-only file" if append == "yes" else f"snapshots: {save}")
    else:
        yield Check("queue on disk", INFO, "kept in memory; the catalog submits jobs again after a restart")


def _compare_counts(client: RuntimeClient, counter: PromptCounter) -> Check:
    options = {"enable_thinking": False}
    try:
        pairs = [
            (counter.count_messages(item), client.count_prompt(item, options=options)) for item in _PROMPTS
        ]
    except (KbError, KeyError, ValueError) as error:
        return Check(
            "tokenizer", WARN, f"the runtime did not count: {error}", "Use a runtime with /tokenize."
        )
    wrong = [pair for pair in pairs if pair[0] != pair[1]]
    if wrong:
        return Check(
            "tokenizer",
            FAIL,
            f"{len(wrong)} of {len(pairs)} prompts count otherwise here, such as {wrong[0][0]} for {wrong[0][1]}",
            "Point KB_GENERATOR_TOKENIZER_PATH at the folder of the model that the runtime serves.",
        )
    return Check("tokenizer", OK, f"{len(pairs)} of {len(pairs)} prompts count alike")


def _find_pool(client: RuntimeClient) -> int:
    try:
        return int(client.get_info().get("max_total_num_tokens") or 0)
    except KbError:
        return 0  # another kind of runtime


def _find_newest(data_dir: Path) -> datetime | None:
    times = [entry.stat().st_mtime for entry in data_dir.glob("*.sqlite")] if data_dir.is_dir() else []
    return datetime.fromtimestamp(max(times), UTC) if times else None


def _iter_connections(pid: int | None, *, listening: bool) -> Iterator[str]:
    """Yield the addresses that a process and its children listen on, or are connected to."""
    if pid is None:
        return
    try:
        root = psutil.Process(pid)
        family = (root, *root.children(recursive=True))
        found = [item for process in family for item in process.net_connections(kind="inet")]
    except psutil.Error:
        return
    for item in found:
        end = item.laddr if listening else item.raddr
        if (item.status == psutil.CONN_LISTEN) is listening and end:
            yield str(end[0])


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def _is_public(address: str) -> bool:
    return ipaddress.ip_address(address).is_global
