"""What `nvidia-smi` says about the cards of this machine."""

from __future__ import annotations

import csv
import shutil
import subprocess
from dataclasses import dataclass

from kb.runtime.cards import Card, parse_capability

_TIMEOUT_S = 20
_FIELDS = (
    "index",
    "name",
    "memory.total",
    "memory.used",
    "compute_cap",
    "driver_version",
    "pcie.link.width.current",
    "pcie.link.gen.current",
    "pcie.link.gen.max",
    "ecc.errors.uncorrected.volatile.total",
    "clocks_throttle_reasons.hw_thermal_slowdown",
    "clocks_throttle_reasons.hw_power_brake_slowdown",
    "temperature.gpu",
    "uuid",
)


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A program that holds memory on a card."""

    gpu_uuid: str
    pid: int
    name: str
    used_mib: int | None


@dataclass(frozen=True, slots=True)
class Gpu:
    """A card of this machine now; what the driver does not say is None or ""."""

    index: int
    card: Card
    used_mib: int
    driver: str
    link_width: int | None
    link_generation: int | None
    link_generation_max: int | None
    ecc_errors: int | None
    throttled: tuple[str, ...]
    temperature_c: int | None
    uuid: str

    @property
    def free_mib(self) -> int:
        """Memory that nothing holds."""
        return self.card.memory_mib - self.used_mib


def list_gpus() -> list[Gpu] | None:
    """Return the cards of this machine, None when there is no working driver."""
    rows = _query("--query-gpu", _FIELDS)
    return None if rows is None else [parse_gpu(row) for row in rows]


def list_gpu_processes() -> list[GpuProcess]:
    """Return the programs that compute on the cards, as far as this user may see them."""
    rows = _query("--query-compute-apps", ("gpu_uuid", "pid", "process_name", "used_memory")) or []
    return [GpuProcess(row[0], int(row[1]), row[2], _to_int(row[3])) for row in rows if len(row) == 4]


def parse_gpu(row: list[str]) -> Gpu:
    """Return one line of the query as a value."""
    (
        index,
        name,
        total,
        used,
        capability,
        driver,
        width,
        generation,
        most,
        ecc,
        thermal,
        brake,
        temperature,
        uuid,
    ) = row
    throttled = [
        reason
        for reason, value in (("too hot", thermal), ("power brake", brake))
        if value.strip().lower() == "active"
    ]
    return Gpu(
        index=int(index),
        card=Card(name, int(total), parse_capability(capability)),
        used_mib=int(used),
        driver=driver,
        link_width=_to_int(width),
        link_generation=_to_int(generation),
        link_generation_max=_to_int(most),
        ecc_errors=_to_int(ecc),
        throttled=tuple(throttled),
        temperature_c=_to_int(temperature),
        uuid=uuid,
    )


def _query(option: str, fields: tuple[str, ...]) -> list[list[str]] | None:
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    command = [program, f"{option}={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    return [[cell.strip() for cell in row] for row in csv.reader(done.stdout.splitlines()) if row]


def _to_int(text: str) -> int | None:
    try:
        return int(float(text))
    except ValueError:
        return None  # [N/A] and the like
