"""A package index over real HTTP that serves a folder of wheels, and breaks off where a test says."""

from __future__ import annotations

import hashlib
import re
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass(slots=True)
class PackageIndex:
    """What the server does, and what it was asked for.

    `break_after` is the most bytes sent for one request of a wheel; `ranges` are the Range headers of
    the requests for wheels, empty ones included; `status` replaces the reply to them.
    """

    folder: Path
    url: str = ""
    break_after: int | None = None
    honours_ranges: bool = True
    status: int = 200
    statuses: list[int] = field(default_factory=list)
    ranges: list[str] = field(default_factory=list)
    lookups: list[str] = field(default_factory=list)
    refuses_strangers: bool = False


@contextmanager
def serve_packages(folder: Path) -> Iterator[PackageIndex]:
    """Run the index on a free loopback port."""
    index = PackageIndex(folder)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            parts = self.path.split("#")[0].strip("/").split("/")
            if parts[0] == "simple":
                index.lookups.append(parts[1])
                self._send_listing(parts[1])
            elif parts[1].endswith(".metadata"):
                self._reply(200, read_metadata(folder / parts[1].removesuffix(".metadata")))
            else:
                self._send_wheel(folder / parts[1])

        def _send_listing(self, package: str) -> None:
            lines = []
            for path in sorted(folder.glob(f"{package.replace('-', '_')}-*.whl")):
                sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
                metadata = hashlib.sha256(read_metadata(path)).hexdigest()
                lines.append(
                    f'<a href="/files/{path.name}#sha256={sha256}" '
                    f'data-core-metadata="sha256={metadata}" '
                    f'data-dist-info-metadata="sha256={metadata}">{path.name}</a>'
                )
            body = f"<!DOCTYPE html><html><body>{''.join(lines)}</body></html>"
            self._reply(200 if lines else 404, body.encode())

        def _send_wheel(self, path: Path) -> None:
            wanted = self.headers.get("Range", "")
            is_pip = self.headers.get("User-Agent", "").startswith("pip/")
            if not is_pip:
                index.ranges.append(wanted)
            status = index.statuses.pop(0) if index.statuses else index.status
            if status != 200 or (index.refuses_strangers and not is_pip):
                self._reply(status if status != 200 else 401, b"")
                return
            content = path.read_bytes()
            start = 0
            if index.honours_ranges and (match := re.fullmatch(r"bytes=(\d+)-", wanted)):
                start = int(match[1])
            self.send_response(206 if start else 200)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(len(content) - start))
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.end_headers()
            end = len(content) if index.break_after is None else start + index.break_after
            self.wfile.write(content[start:end])

        def _reply(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    index.url = f"http://127.0.0.1:{server.server_port}/simple"
    try:
        yield index
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def read_metadata(wheel: Path) -> bytes:
    """Return the METADATA of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(next(name for name in archive.namelist() if name.endswith("/METADATA")))
