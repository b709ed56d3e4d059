"""The API as `python -m api` runs it, with the times at its generator written to a file.

    python -m benchmarks.gpu.timed_api TIMES_FILE

An answer's text leaves the API once a sentence is checked, so a client can't see when the model's first
token came. Each line of the file is one generation: the question, and when its prompt was ready, when the
first token came and when the last (seconds since the epoch).
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from kb.ports import Generator
from kb.types import GenerationDelta, GenerationEnd, GenerationEvent, GenerationRequest


class TimedGenerator:
    """Writes down when things happen; otherwise the wrapped generator."""

    def __init__(self, generator: Generator, target: Path) -> None:
        self._generator = generator
        self._file = target.open("a", encoding="utf-8")
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """See `kb.ports.Generator`."""
        return self._generator.name

    @property
    def mode(self) -> str:
        """See `kb.ports.Generator`."""
        return self._generator.mode

    def get_context_limit(self) -> int:
        """See `kb.ports.Generator`."""
        return self._generator.get_context_limit()

    def ping(self) -> str:
        """See `kb.ports.Generator`."""
        return self._generator.ping()

    def stream(self, request: GenerationRequest) -> Iterator[GenerationEvent]:
        """See `kb.ports.Generator`."""
        asked_at, first_at = time.time(), None
        end: GenerationEnd | None = None
        try:
            for event in self._generator.stream(request):
                if isinstance(event, GenerationDelta):
                    first_at = first_at or time.time()
                else:
                    end = event
                yield event
        finally:
            self._note(
                question=request.question,
                asked_at=asked_at,
                first_at=first_at,
                ended_at=time.time(),
                prompt_tokens=end.prompt_tokens if end else 0,
                completion_tokens=end.completion_tokens if end else 0,
                cached_tokens=end.cached_tokens if end else 0,
                ended=end is not None,
                looped=end.looped if end else False,
            )

    def _note(self, **values: object) -> None:
        line = json.dumps(values, ensure_ascii=False) + "\n"
        with self._lock:
            self._file.write(line)
            self._file.flush()


def main() -> None:
    """Serve with the settings of the environment."""
    from api.__main__ import serve
    from kb.bootstrap import build_generator
    from kb.logs import configure_logging
    from kb.offline import go_offline
    from kb.settings import load_settings

    go_offline()
    settings = load_settings()
    configure_logging(process="api", log_format=settings.log_format, log_level=settings.log_level)
    serve(settings, generator=TimedGenerator(build_generator(settings), Path(sys.argv[1])))


if __name__ == "__main__":
    main()
