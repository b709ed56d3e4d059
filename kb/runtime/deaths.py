"""Why a runtime did not come up, read from its log."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from kb.errors import ConfigurationError


class Relief(StrEnum):
    """What another start would have to change."""

    NONE = "none"
    MEMORY = "memory"
    POOL = "pool"


@dataclass(frozen=True, slots=True)
class StartDeath:
    """A known way to die at start; `next_step` is for the user."""

    code: str
    message: str
    next_step: str
    relief: Relief = Relief.NONE


@dataclass(frozen=True, slots=True)
class _Known:
    pattern: re.Pattern[str]
    death: StartDeath


class RuntimeStartError(ConfigurationError):
    """The runtime did not come up; `tail` is the end of its log."""

    code = "runtime_start_failed"

    def __init__(self, death: StartDeath, *, tail: tuple[str, ...], log_path: str) -> None:
        super().__init__(
            f"the runtime did not start: {death.message}", next_step=f"{death.next_step} Its log: {log_path}"
        )
        self.death = death
        self.tail = tail


def _known(pattern: str, code: str, message: str, next_step: str, relief: Relief = Relief.NONE) -> _Known:
    return _Known(re.compile(pattern, re.IGNORECASE), StartDeath(code, message, next_step, relief))


# The first that fits wins, so what is more special stands first.
_KNOWN = (
    _known(
        r"No module named '?sglang",
        "runtime_missing",
        "SGLang is not installed in this environment",
        "Run `make gpu`, or point KB_RUNTIME_PYTHON at the Python that has it.",
    ),
    _known(
        r"address already in use|port \d+ .*(?:already in use|not available)|Port is already in use",
        "port_busy",
        "the port is taken",
        "Stop the program that uses it, or choose another with --port.",
    ),
    _known(
        r"driver on your system is too old|driver version is insufficient|forward compatibility was attempted",
        "driver_too_old",
        "the NVIDIA driver is too old for this runtime",
        "Update the driver; `nvidia-smi` shows the CUDA version that it supports.",
    ),
    _known(
        r"libcuda\.so[.\d]*: cannot open|Found no NVIDIA driver|No CUDA GPUs are available"
        r"|Torch not compiled with CUDA|no CUDA-capable device|No accelerator .*is available",
        "no_gpu",
        "no NVIDIA driver or card was found",
        "Run `kb doctor`. In a container, start it with the NVIDIA runtime (--gpus all).",
    ),
    _known(
        r"out of memory[\s\S]{0,4000}capture cuda graph failed|capture cuda graph failed[\s\S]{0,600}out of memory"
        r"|capture cuda graph failed",
        "memory_at_graphs",
        "memory ran out while decode graphs were captured",
        "Plan for fewer requests at once (--concurrency), or free memory on the card.",
        Relief.MEMORY,
    ),
    _known(
        r"Not enough memory\. Please try to increase --mem-fraction-static",
        "pool_too_small",
        "the weights leave no room for the KV cache",
        "Free memory on the card (`kb doctor` says who uses it), or take a smaller model.",
        Relief.POOL,
    ),
    _known(
        r"CUDA out of memory|torch\.OutOfMemoryError|CUDA error: out of memory|cudaErrorMemoryAllocation",
        "out_of_memory",
        "the card's memory ran out",
        "Free memory on the card (`kb doctor` says who uses it), or ask for a shorter context.",
        Relief.MEMORY,
    ),
    _known(
        r"quantization method .*(?:does not match|not supported for the current GPU)|Unknown quantization"
        r"|Cannot find the config file for|quantization argument \(\w+\)"
        r"|Invalid quantization|not supported by (?:awq|gptq)_marlin|Unsupported num_bits|unsupported (?:weight )?bits",
        "wrong_quantization",
        "the weights are not packed in a way that this runtime and card can run",
        "Run `kb model verify` on the folder.",
    ),
    _known(
        r"Model architectures .* are not supported|Unrecognized (?:model|configuration)|does not recognize this architecture",
        "architecture_unknown",
        "this runtime does not know the model's architecture",
        "Use a newer runtime (`make gpu` with another GPU_RUNTIME), or another model.",
    ),
    _known(
        r"trust_remote_code",
        "remote_code",
        "the model wants to run code of its own",
        "Use a model that the runtime knows by itself; code out of a model folder is never run here.",
    ),
    _known(
        r"nvcc(?:: not found|.*No such file)|Could not find nvcc|CUDA_HOME environment variable is not set"
        r"|Ninja is required|ninja: build stopped|Error (?:building extension|compiling objects)",
        "compiler_missing",
        "a kernel had to be compiled, and that failed",
        "Install the CUDA toolkit of the runtime's CUDA version, or keep `--attention-backend triton`.",
    ),
    _known(
        r"SafetensorError|HeaderTooLarge|MetadataIncompleteBuffer|size mismatch|InvalidHeader",
        "weights_damaged",
        "the weights could not be read",
        "Run `kb model verify` on the folder.",
    ),
)
_KILLED = StartDeath(
    "killed",
    "something killed it, most often the system because memory (not the card's) ran out",
    "Look at `dmesg`; give the machine more memory or swap.",
)


def find_death(log: str, *, outcome: str) -> StartDeath:
    """Return what the log of a failed start says; `outcome` is how the process ended, in words."""
    for known in _KNOWN:
        if known.pattern.search(log):
            return known.death
    if "SIGKILL" in outcome:
        return _KILLED
    return StartDeath("unknown", f"it {outcome}", "Read the end of its log.")
