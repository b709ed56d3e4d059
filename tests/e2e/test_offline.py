"""With the network cut, the whole path works and no process tries to reach any other address."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.service import KB_COMMAND, ROOT, find_free_port, find_models_dir

CUT = ["unshare", "--net", "--mount", "bash", str(Path(__file__).with_name("cut_network.sh"))]


def run_cut_off(*command: str, limit_s: float = 60.0, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a command without a network; skips where namespaces are not allowed, fails there in CI."""
    if not (shutil.which("unshare") and shutil.which("ip")) or os.geteuid() != 0:
        if os.environ.get("CI") == "true" and os.geteuid() == 0:
            pytest.fail("unshare and ip are needed: apt-get install util-linux iproute2")
        pytest.skip("network namespaces need root, unshare and ip")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("KB_")}
    return subprocess.run(
        [*CUT, *command],
        env=environment | settings,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )


def test_the_check_itself_notices_a_connection_attempt() -> None:
    attempt = "import socket; s = socket.socket(); s.settimeout(1); s.connect_ex(('203.0.113.7', 80))"

    result = run_cut_off(sys.executable, "-c", attempt)

    assert result.returncode == 99


def test_the_check_itself_notices_a_dns_query() -> None:
    attempt = (
        "import contextlib, socket\nwith contextlib.suppress(OSError): socket.gethostbyname('example.org')"
    )

    result = run_cut_off(sys.executable, "-c", attempt)

    assert result.returncode == 99


@pytest.mark.timeout(900)
def test_start_ingest_and_answers_need_no_network(tmp_path: Path) -> None:
    result = run_cut_off(
        *KB_COMMAND,
        "demo",
        "--once",
        "--questions",
        "2",
        limit_s=850,
        KB_DATA_DIR=str(tmp_path / "data"),
        KB_MODELS_DIR=str(find_models_dir()),
        KB_API_PORT=str(find_free_port()),
    )

    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-3000:]
    assert "E-0471" in result.stdout
