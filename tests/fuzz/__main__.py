"""Feeds damaged files to the code of the parser's process: `python -m tests.fuzz [--minutes N] [FILE …]`.

Rounds of examples run in processes of their own, each with one kind of file, until the time is up. A process
that dies or hangs is what the service contains; it is counted and its file kept. A fault is an outcome that
breaks a promise: no known error code, no next step, text that can't be stored or cut into chunks, or an
exception that our own code lets happen. Files of faults and their tracebacks are kept in `--keep`.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import multiprocessing
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from benchmarks.drawing import draw_mixed
from ingest.chunking import Chunker
from ingest.formats import detect_media_type
from ingest.paged import PagedParser
from ingest.parse_child import ParseRequest, Progress, build_parser, limit_process, parse
from ingest.parsed_json import from_json
from ingest.reader import ERRORS
from kb.errors import DocumentError
from tests.fuzz.mutations import Mutation, mutations

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES_A_ROUND = 60
HANG_S = 60.0
MEMORY_BYTES = 2 * 1024**3
MAX_SAMPLE_BYTES = 2 * 1024**2


class FaultError(Exception):
    """An outcome breaks a promise."""


def check(path: Path, name: str) -> None:
    """Parse as the parser's process does, and see that the outcome is one the service can use."""
    with tempfile.TemporaryDirectory() as folder:
        request = ParseRequest(
            path=str(path),
            name=name,
            result_path=f"{folder}/result.json",
            memory_bytes=MEMORY_BYTES,
            max_pages=200,
            ocr=False,
            pages_folder=folder,
            max_text_bytes=8 * 1024**2,
        )
        outcome = parse(request, Progress(io.StringIO()), should_stop=lambda: False)
    if "error" in outcome:
        error = outcome["error"]
        if error["code"] not in ERRORS or not error["next_step"]:
            raise FaultError(f"{error['code']} is no error to tell a user: {error['message']}")
        find_own_fault(path, name)
        return
    if "document" not in outcome:
        return
    parsed = from_json(json.loads(json.dumps(outcome["document"])))
    for page in parsed.pages:
        if "\0" in page.text:
            raise FaultError(f"page {page.page_number} holds NUL")
        for block in page.blocks:
            if not 0 <= block.char_start <= block.char_end <= len(page.text):
                raise FaultError(f"a block of page {page.page_number} is outside its text")
    chunker = Chunker(count_tokens=lambda text: len(text) // 3, max_tokens=200, overlap_tokens=20)
    for chunk in chunker.chunk(parsed, document_id="doc", generation=1):
        if len(chunk.indexed_text) // 3 > 200:
            raise FaultError("a chunk is too long for the embedder")
    if any("page_damaged" in warning for page in parsed.pages for warning in page.quality.warnings):
        find_own_fault(path, name)


def find_own_fault(path: Path, name: str) -> None:
    """Raise what our own code, not a library, raises for the file."""
    try:
        parser = build_parser(detect_media_type(path, name), max_pages=200, ocr=False)
        if isinstance(parser, PagedParser):
            with parser.open(path, name=name, password=None) as source:
                for number in range(1, min(source.page_count, 200) + 1):
                    source.read_page(number)
        else:
            parser.parse(path, name=name, password=None, progress=lambda _done, _total: None)
    except (DocumentError, MemoryError, RecursionError):
        return
    except Exception as error:
        innermost = traceback.extract_tb(error.__traceback__)[-1]
        if Path(innermost.filename).is_relative_to(ROOT / "ingest"):
            raise


def run_round(sample: Path, keep: Path, number: int, count: int) -> None:
    """Try examples of one file; the present one lies in `keep`, and stays there if it is a fault."""
    limit_process(memory_bytes=MEMORY_BYTES)
    original = sample.read_bytes()
    present = keep / f"present-{number}{sample.suffix}"

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    @given(mutations())
    def try_one(mutate: Mutation) -> None:
        present.write_bytes(mutate(original))
        check(present, sample.name)

    try:
        try_one()
    except BaseException:
        present.rename(keep / f"fault-{number}{sample.suffix}")
        (keep / f"fault-{number}.txt").write_text(traceback.format_exc(), "utf-8")
        return
    present.unlink(missing_ok=True)


def watch(process: BaseProcess, present: Path, keep: Path) -> str:
    """Wait for the round's end; return how it ended: `done`, `died` or `hung`."""
    seen, since_s = 0, time.monotonic()
    while process.is_alive():
        process.join(0.5)
        changed = present.stat().st_mtime_ns if present.exists() else 0
        if changed != seen:
            seen, since_s = changed, time.monotonic()
        if time.monotonic() - since_s > HANG_S:
            process.kill()
            process.join()
            present.rename(keep / present.name.replace("present", "hung"))
            return "hung"
    if process.exitcode:
        if present.exists():
            present.rename(keep / present.name.replace("present", "died"))
        return "died"
    return "done"


def list_samples(given_files: Sequence[Path], folder: Path) -> list[Path]:
    """Return whole files of each format: the given ones, or drawn ones and the sample documents."""
    if given_files:
        return [path for path in given_files if 0 < path.stat().st_size <= MAX_SAMPLE_BYTES]
    drawn = [draw_mixed(folder, number) for number in range(10)]
    samples = sorted(path for path in (ROOT / "sample_docs").iterdir() if path.suffix in _SAMPLE_SUFFIXES)
    return drawn + [path for path in samples if path.stat().st_size <= MAX_SAMPLE_BYTES]


_SAMPLE_SUFFIXES = (".pdf", ".docx", ".xlsx", ".pptx", ".html", ".md", ".csv", ".eml", ".txt", ".xml")


def main() -> int:
    """Run from the command line; returns 1 if a promise was broken."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("files", nargs="*", type=Path, help="whole files; default: drawn ones and samples")
    arguments.add_argument("--minutes", type=float, default=10.0)
    arguments.add_argument("--seed", type=int, default=1, help="number of the first round")
    arguments.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "kb-fuzz")
    given_ = arguments.parse_args()
    given_.keep.mkdir(parents=True, exist_ok=True)
    ends: Counter[str] = Counter()
    until_s = time.monotonic() + given_.minutes * 60
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        samples = list_samples(given_.files, Path(folder))
        for number, sample in zip(itertools.count(given_.seed), itertools.cycle(samples), strict=False):
            if time.monotonic() >= until_s:
                break
            process = context.Process(
                target=run_round, args=(sample, given_.keep, number, EXAMPLES_A_ROUND), daemon=True
            )
            process.start()
            end = watch(process, given_.keep / f"present-{number}{sample.suffix}", given_.keep)
            if (given_.keep / f"fault-{number}.txt").exists():
                end = "fault"
            ends[end] += 1
            if end != "done":
                print(f"round {number}, {sample.name}: {end}", flush=True)
    print(f"{sum(ends.values())} rounds of {EXAMPLES_A_ROUND} files: {dict(ends)}; kept in {given_.keep}")
    return 1 if ends["fault"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
