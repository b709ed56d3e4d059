"""Sets of questions on disk, in any of four layouts, as questions and the texts they are asked of."""

from __future__ import annotations

import hashlib
import json
import random
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from kb.errors import CallerError
from kb.evaluation import Place, Question
from kb.filenames import clean_filename
from kb.language import detect_language

CORPUS_NAME, QUERIES_NAME = "corpus.jsonl", "queries.jsonl"
_OTHER_IDS = "gold_ids_"


class QuestionsFileError(CallerError):
    """A file of questions cannot be used."""

    code = "questions_file"


@dataclass(frozen=True, slots=True)
class SourceText:
    """One document of a set's own corpus."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """Questions, with the documents they are asked of if the set brings them.

    Without `texts` places are names of documents in a collection, else ids of the texts.
    """

    name: str
    questions: tuple[Question, ...]
    texts: tuple[SourceText, ...] | None = None

    @property
    def fingerprint(self) -> str:
        """A name for these very questions on these very texts."""
        digest = hashlib.sha256(self.name.encode())
        for question in self.questions:
            places = sorted(f"{name}\0{page}" for name, page in question.places)
            digest.update("\0".join([question.id, question.text, *places]).encode())
        for text in self.texts or ():
            digest.update(f"{text.id}\0{text.text}".encode("utf-8", "surrogatepass"))
        return digest.hexdigest()[:16]

    def sample(self, limit: int | None, *, seed: int) -> QuestionSet:
        """Return the set with at most `limit` questions, the same ones for the same seed, in order."""
        if limit is None or limit >= len(self.questions):
            return self
        chosen = sorted(random.Random(seed).sample(range(len(self.questions)), limit))  # noqa: S311 - no secret
        return replace(self, questions=tuple(self.questions[index] for index in chosen))


class _Evidence(BaseModel):
    """Where an answer stands; the page may be left out."""

    document: str = Field(min_length=1, validation_alias=AliasChoices("document", "file"))
    page: int | None = Field(default=None, ge=1)


class _Entry(BaseModel):
    """A question as people and data sets write it."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    id: str = ""
    text: str = Field(min_length=1, validation_alias=AliasChoices("text", "question", "query"))
    lang: str = Field(default="", validation_alias=AliasChoices("lang", "language"))
    kind: str = ""
    answerable: bool | None = None
    answers: tuple[str, ...] = ()
    answer: str | None = None
    answer_slots: tuple[tuple[str, ...], ...] = ()
    answers_rule: str = ""
    evidence: tuple[_Evidence, ...] = Field(default=(), validation_alias=AliasChoices("evidence", "gold"))
    document: str | None = None
    page: int | None = Field(default=None, ge=1)
    gold_ids: tuple[str, ...] = ()


class _OwnEntry(_Entry):
    """A question of a file that is written for this command, where an unknown key is a slip."""

    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)


class _Text(BaseModel):
    """A line of a corpus."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    id: str = Field(min_length=1, validation_alias=AliasChoices("id", "_id"))
    title: str | None = None
    text: str


def load_set(path: Path) -> QuestionSet:
    """Return the set at `path`; raises `QuestionsFileError` naming what is wrong.

    A folder holds `corpus.jsonl` and `queries.jsonl`. A file is TOML (`[[question]]`), JSON lines, or
    JSON with a list `questions`.
    """
    if path.is_dir():
        return _load_folder(path)
    match path.suffix.lower():
        case ".jsonl" | ".ndjson":
            rows = _read_lines(path)
            questions = _build_questions(path, rows, _OwnEntry)
        case ".json":
            questions = _build_questions(path, _read_list(path, _read_json(path), "questions"), _Entry)
        case _:
            questions = _build_questions(path, _read_list(path, _read_toml(path), "question"), _OwnEntry)
    for question in questions:
        if question.answerable and not (question.places or question.answers):
            raise QuestionsFileError(
                f"{str(path)!r}: {question.id!r} is answerable but has no evidence and no answer",
                next_step="Name the document that answers it, or set answerable to false.",
            )
    return QuestionSet(path.stem, tuple(questions))


def _load_folder(folder: Path) -> QuestionSet:
    texts: dict[str, SourceText] = {}
    corpus = folder / CORPUS_NAME
    for number, row in enumerate(_read_lines(corpus), start=1):
        try:
            entry = _Text.model_validate(row)
        except ValidationError as error:
            raise _wrong(corpus, f"line {number}", error) from error
        title = (entry.title or "").strip()
        has_title = not title or entry.text.lstrip().startswith(title)
        texts[entry.id] = SourceText(entry.id, entry.text if has_title else f"{title}\n\n{entry.text}")
    questions = _build_questions(folder / QUERIES_NAME, _read_lines(folder / QUERIES_NAME), _Entry)
    return QuestionSet(folder.resolve().name, tuple(questions), tuple(texts.values()))


def _build_questions(path: Path, rows: Iterable[object], shape: type[_Entry]) -> list[Question]:
    questions: dict[str, Question] = {}
    for number, row in enumerate(rows, start=1):
        try:
            entry = shape.model_validate(row)
        except ValidationError as error:
            raise _wrong(path, f"question {number}", error) from error
        question = _build_question(entry, row if isinstance(row, Mapping) else {}, number=number)
        if question.id in questions:
            raise QuestionsFileError(f"{str(path)!r}: the id {question.id!r} occurs twice")
        questions[question.id] = question
    if not questions:
        raise QuestionsFileError(
            f"{str(path)!r} holds no question", next_step="docs/evaluation.md describes the formats."
        )
    return list(questions.values())


def _build_question(entry: _Entry, row: Mapping[str, Any], *, number: int) -> Question:
    places: set[Place] = {(clean_filename(item.document), item.page) for item in entry.evidence}
    places |= {(item, None) for item in entry.gold_ids}
    if entry.document:
        places.add((clean_filename(entry.document), entry.page))
    answers = (*entry.answers, *([entry.answer] if entry.answer else []))
    slots = entry.answer_slots or ((tuple((text,) for text in answers)) if entry.answers_rule else (answers,))
    others = {
        key.removeprefix(_OTHER_IDS): frozenset((str(item), None) for item in value)
        for key, value in row.items()
        if key.startswith(_OTHER_IDS) and isinstance(value, list)
    }
    return Question(
        id=entry.id or str(number),
        lang=entry.lang or detect_language(entry.text),
        kind=entry.kind,
        text=entry.text,
        answerable=bool(places or answers) if entry.answerable is None else entry.answerable,
        answers=answers,
        answer_slots=slots if answers else (),
        places=frozenset(places),
        other_places=others,
    )


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise QuestionsFileError(
            f"{str(path)!r} cannot be read: {error}", next_step="docs/evaluation.md describes the formats."
        ) from error


def _read_lines(path: Path) -> list[object]:
    rows: list[object] = []
    # Only \n ends a line: text may hold other separators that splitlines would cut at.
    for number, line in enumerate(_read_text(path).split("\n"), start=1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                raise QuestionsFileError(f"{str(path)!r}: line {number} is no JSON: {error}") from error
    return rows


def _read_json(path: Path) -> object:
    try:
        return json.loads(_read_text(path))
    except ValueError as error:
        raise QuestionsFileError(f"{str(path)!r} is no JSON: {error}") from error


def _read_toml(path: Path) -> object:
    try:
        return tomllib.loads(_read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise QuestionsFileError(f"{str(path)!r} cannot be read: {error}") from error


def _read_list(path: Path, content: object, name: str) -> list[object]:
    """Return the list `name` of a file's content, or the content that is a list itself."""
    found = content.get(name) if isinstance(content, dict) else content
    if not isinstance(found, list):
        raise QuestionsFileError(
            f"{str(path)!r} has no list {name!r}", next_step="docs/evaluation.md describes the formats."
        )
    return found


def _wrong(path: Path, where: str, error: ValidationError) -> QuestionsFileError:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return QuestionsFileError(
        f"{str(path)!r}: {where}: {place}: {first['msg']}",
        next_step="Correct the file; docs/evaluation.md describes it.",
    )
