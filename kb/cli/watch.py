"""`kb ingest --watch`: keeps a collection in step with a folder."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kb.cli.service import signals_as_interrupt
from kb.client import ClientError, KbClient, ServiceUnreachableError
from kb.known_documents import hash_file
from kb.types import DocumentState
from kb.watched_folder import WatchedFile, WatchedFolder, find_memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kb.schemas import DocumentOut, JobOut

INTERVAL_S = 2.0


def watch_folder(client: KbClient, root: Path, *, collection: str, as_json: bool) -> None:
    """Follow the folder until Ctrl-C or SIGTERM, which is the proper end."""
    folder = WatchedFolder(root, memory=find_memory(root, url=client.url, collection=collection))
    watch = FolderWatch(client, root, folder, collection=collection, tell=_tell_json if as_json else _tell)
    watch.tell("watching", str(root), f"collection {collection!r}; Ctrl-C stops it")
    try:
        with signals_as_interrupt():
            while True:
                watch.step()
                time.sleep(INTERVAL_S)
    except KeyboardInterrupt:
        watch.tell("stopped", str(root), "")


class FolderWatch:
    """Turns changes of a folder into uploads and deletions; what fails is tried again by a later step."""

    def __init__(
        self,
        client: KbClient,
        root: Path,
        folder: WatchedFolder,
        *,
        collection: str,
        tell: Callable[[str, str, str], None],
    ) -> None:
        """`tell` takes an event, a path and details; each is told once."""
        self.tell = tell
        self._client = client
        self._root = root
        self._folder = folder
        self._collection = collection
        self._trouble = ""
        self._unreadable: set[str] = set()

    def step(self) -> None:
        """Look at the folder once, and at the jobs of what was sent before."""
        changes = self._folder.look()
        try:
            if changes.is_gone:
                self._note_trouble("folder_gone", "it is empty or can't be read: nothing is deleted")
                return
            self._client.ensure_collection(self._collection)
            for path in changes.changed:
                self._send(path)
            for path in changes.deleted:
                self._delete(path)
            self._follow()
        except ServiceUnreachableError as error:
            self._note_trouble(error.code, error.message)
            return
        finally:
            self._folder.save()
        self._trouble = ""

    def _note_trouble(self, event: str, details: str) -> None:
        if self._trouble != event:
            self._trouble = event
            self.tell(event, str(self._root), details)

    def _send(self, path: str) -> None:
        former = self._folder.files.get(path, WatchedFile((-1, -1)))
        signature = self._folder.get_signature(path)
        file = self._root / path
        try:
            sha256 = hash_file(file)
            if former.sha256 == sha256:
                self._folder.remember(path, replace(former, signature=signature))
                return
            result = self._client.upload(self._collection, file, name=self._folder.name(path))
        except OSError as error:
            # a program may have locked it: it is tried again at each step, but told once
            if path not in self._unreadable:
                self._unreadable.add(path)
                self.tell("unreadable", path, error.strerror or str(error))
            return
        except ServiceUnreachableError:
            raise
        except ClientError as error:
            if error.status in (401, 403):
                raise
            self._refuse(path, former, f"{error.code}: {error.message}")
            return
        self._unreadable.discard(path)
        document = result.document
        if document is None:
            self._refuse(path, former, f"{result.error.code}: {result.error.message}" if result.error else "")
            return
        replaced = former.replaces or (former.document_id if former.document_id != document.id else "")
        # the hash is that of what was sent, even if the file was written meanwhile
        self._folder.remember(
            path, WatchedFile(signature, document.sha256, document.id, document.job_id, replaced)
        )
        event = "changed" if former.document_id else "added"
        self.tell(event, path, _describe(document, duplicate=result.duplicate))

    def _refuse(self, path: str, former: WatchedFile, reason: str) -> None:
        """Leave the file alone until it changes, since it would be refused again; its old version stays."""
        signature = self._folder.get_signature(path)
        self._folder.remember(path, replace(former, signature=signature, sha256=""))
        self.tell("refused", path, reason)

    def _delete(self, path: str) -> None:
        file = self._folder.files[path]
        self._folder.forget(path)
        try:
            for document_id in {file.document_id, file.replaces} - {""}:
                self._remove(document_id)
        except ClientError:
            self._folder.remember(path, file)
            raise
        self.tell("deleted", path, "")

    def _remove(self, document_id: str) -> None:
        """Delete the document unless it is gone already, or another file needs it."""
        if self._folder.is_needed(document_id):
            return
        try:
            # the same bytes may be attached to a mail: then only the file's own document goes
            self._client.delete_document(self._collection, document_id, keep_attached=True)
        except ClientError as error:
            if error.status != 404:
                raise

    def _follow(self) -> None:
        for path, file in list(self._folder.files.items()):
            if not file.job_id:
                continue
            try:
                job = self._client.get_job(file.job_id)
            except ServiceUnreachableError:
                raise
            except ClientError as error:
                if error.status != 404:
                    raise
                self._folder.remember(path, replace(file, job_id=""))
                continue
            state = DocumentState(job.document_state)
            if not state.is_terminal:
                continue
            self.tell(state.value, path, self._find_error(job))
            # a document of the same name was replaced by then; one of another name has to go now
            if state.is_searchable and file.replaces:
                self._remove(file.replaces)
            replaces = "" if state.is_searchable else file.replaces
            self._folder.remember(path, replace(file, job_id="", replaces=replaces))

    def _find_error(self, job: JobOut) -> str:
        document = self._client.get_document(self._collection, job.document_id)
        problem = document.error or next(iter(document.warnings), None)
        return "" if problem is None else f"{problem.code}: {problem.message} {problem.next_step}".strip()


def _describe(document: DocumentOut, *, duplicate: bool) -> str:
    return f"is there already as {document.name!r}" if duplicate else f"as {document.name!r}"


def _tell(event: str, path: str, details: str) -> None:
    from rich.markup import escape

    from kb.cli.output import get_console, paint_state

    now = datetime.now().astimezone()
    shown = f"[dim]{now:%H:%M:%S}[/] {paint_state(event)}  {escape(path)}  [dim]{escape(details)}[/]"
    get_console().print(shown.rstrip(), highlight=False, soft_wrap=True)


def _tell_json(event: str, path: str, details: str) -> None:
    line: dict[str, Any] = {"event": event, "path": path, "details": details}
    sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
    sys.stdout.flush()
