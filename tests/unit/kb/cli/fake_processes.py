"""Stands for `python -m api` and `python -m workers` in tests of `kb up`."""

from __future__ import annotations

from pathlib import Path

API = """
import os, signal, sys
import uvicorn
from tests.unit.kb.cli.fake_service import State, create_app
if os.environ.get("FAKE_API_DIES"):
    print("cannot open the catalog", flush=True)
    sys.exit(7)
for name in ("KB_REDIS_URL", "KB_CHROMA_URL", "KB_DATA_DIR", "HF_HUB_OFFLINE"):
    print(name, os.environ[name], flush=True)
state = State()
if os.environ.get("FAKE_CATALOG_DOWN"):
    state.dependencies[0] = state.dependencies[0].model_copy(update={"ok": False, "detail": "locked"})
uvicorn.run(
    create_app(state), host="127.0.0.1", port=int(os.environ["KB_API_PORT"]), log_level="error", ws="none"
)
"""

WORKER = "import time; time.sleep(600)"


def write_packages(folder: Path) -> None:
    """Write packages `api` and `workers` that win over ours where `folder` is the working directory."""
    for name, code in (("api", API), ("workers", WORKER)):
        package = folder / name
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "__main__.py").write_text(code)
