"""Every place for passwords keeps them until they are forgotten."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from kb.adapters.memory_passwords import MemoryPasswords
from kb.adapters.tmpfs_passwords import TmpfsPasswords, find_file_system
from kb.errors import PasswordsUnavailableError
from kb.ports import Passwords


def say_tmpfs(_path: Path) -> str:
    return "tmpfs"


PLACES: dict[str, Callable[[Path], Passwords]] = {
    "memory": lambda tmp: MemoryPasswords(),
    "tmpfs": lambda tmp: TmpfsPasswords(tmp / "secrets", file_system=say_tmpfs),
}


@pytest.fixture(params=list(PLACES.values()), ids=list(PLACES))
def passwords(request: pytest.FixtureRequest, tmp_path: Path) -> Passwords:
    opened: Passwords = request.param(tmp_path)
    return opened


@pytest.mark.parametrize("password", ["simple", "  Öl\n密码 \U0001f512", "lone \udc80 half"])
def test_a_password_comes_back_as_it_was(passwords: Passwords, password: str) -> None:
    passwords.keep("j1", password)

    assert passwords.find("j1") == password
    assert passwords.find("j2") is None
    assert passwords.list_jobs() == ["j1"]


def test_a_later_password_replaces_the_former(passwords: Passwords) -> None:
    passwords.keep("j1", "old")
    passwords.keep("j1", "new")

    assert passwords.find("j1") == "new"


def test_a_forgotten_password_is_gone_and_may_be_forgotten_again(passwords: Passwords) -> None:
    passwords.keep("j1", "one")
    passwords.keep("j2", "two")

    passwords.forget("j1")
    passwords.forget("j1")

    assert passwords.find("j1") is None
    assert passwords.list_jobs() == ["j2"]


def test_nothing_is_there_at_first(passwords: Passwords) -> None:
    passwords.forget("j1")

    assert passwords.find("j1") is None
    assert passwords.list_jobs() == []


def test_files_are_for_this_user_alone(tmp_path: Path) -> None:
    root = tmp_path / "secrets"
    TmpfsPasswords(root, file_system=say_tmpfs).keep("j1", "x")

    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert stat.S_IMODE((root / "j1").stat().st_mode) == 0o600


def test_another_process_sees_the_password(tmp_path: Path) -> None:
    TmpfsPasswords(tmp_path / "secrets", file_system=say_tmpfs).keep("j1", "x")

    assert TmpfsPasswords(tmp_path / "secrets").find("j1") == "x"


def test_a_disk_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    passwords = TmpfsPasswords(tmp_path / "secrets", file_system=lambda _path: "ext4")

    with pytest.raises(PasswordsUnavailableError, match="ext4"):
        passwords.keep("j1", "x")

    assert list((tmp_path / "secrets").iterdir()) == []


def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "secrets"
    root.mkdir(mode=0o755)
    link = tmp_path / "link"
    own = tmp_path / "own"
    own.mkdir(mode=0o700)
    link.symlink_to(own)

    for path in (root, link):
        with pytest.raises(PasswordsUnavailableError, match="open to other users"):
            TmpfsPasswords(path, file_system=say_tmpfs).keep("j1", "x")


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(PasswordsUnavailableError, match="cannot be made"):
        TmpfsPasswords(tmp_path / "file" / "secrets", file_system=say_tmpfs).keep("j1", "x")


def test_a_password_that_cannot_be_written_is_said_and_not_quoted(tmp_path: Path) -> None:
    root = tmp_path / "secrets"
    (root / "j1").mkdir(parents=True)
    root.chmod(0o700)

    with pytest.raises(PasswordsUnavailableError) as caught:
        TmpfsPasswords(root, file_system=say_tmpfs).keep("j1", "canary")

    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("job_id", ["", "../j1", "a/b", "j1.part"])
def test_only_ids_of_jobs_become_files(tmp_path: Path, job_id: str) -> None:
    with pytest.raises(ValueError, match="not the id"):
        TmpfsPasswords(tmp_path / "secrets", file_system=say_tmpfs).keep(job_id, "x")


def test_the_file_system_of_a_path_is_known() -> None:
    assert find_file_system(Path("/proc/self")) == "proc"
    assert find_file_system(Path("/dev/shm/not/there")) == "tmpfs"
