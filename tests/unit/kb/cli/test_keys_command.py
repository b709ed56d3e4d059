from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.unit.api.service import Service, quiet_logs
from tests.unit.kb.cli.conftest import Run
from tests.unit.kb.cli.fake_service import serve


@pytest.fixture
def run_real(run: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs the kb command against the real routes, with a store in memory."""
    with quiet_logs(), serve(Service().build_app()) as url:
        monkeypatch.setenv("KB_API_URL", url)
        yield run


def test_keys_are_created_listed_replaced_and_revoked(run_real: Run) -> None:
    assert "Create the first" in run_real("keys", "list").out
    refused = run_real("keys", "create", "Dify")
    assert refused.code == 1
    assert "--role admin" in refused.err

    created = run_real("keys", "create", "张工", "--role", "admin").out.splitlines()

    assert created[0] == "Key for '张工': admin of all collections"
    admin = {"KB_API_KEY": created[1]}
    assert run_real("keys", "list", KB_API_KEY="some-wrong-key-of-someone").code == 5
    guest = run_real(
        "keys", "create", "line 2", "-c", "press", "-c", "手册", "--days", "30", "--json", **admin
    )
    assert guest.json["key"]["collections"] == ["press", "手册"]
    newer = run_real("keys", "rotate", guest.json["key"]["id"], "--grace-hours", "2", "--json", **admin)
    revoked = run_real("keys", "revoke", newer.json["key"]["id"], **admin)
    assert revoked.out == f"Revoked {newer.json['key']['id']}.\n"
    listed = run_real("keys", "list", **admin).out
    assert "press, 手册" in listed
    assert "until 20" in listed
    assert "revoked" in listed
    assert created[1] not in listed
    assert run_real("keys", "revoke", "key_0", **admin).code == 4
    assert run_real("keys", "create", "x", "--role", "boss", **admin).code == 2


def test_the_audit_log_is_a_table_or_lines_of_json(run_real: Run) -> None:
    assert run_real("audit").out == "Nothing was changed yet.\n"
    run_real("collections", "create", "press")

    table, lines = run_real("audit").out, run_real("audit", "--json").out.splitlines()

    assert "collection.create" in table
    assert [json.loads(line)["collection"] for line in lines] == ["press"]
