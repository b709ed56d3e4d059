"""Damaged files: mutations of whole ones, drawn by hypothesis so that what fails is found again and made small."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable

from hypothesis import strategies as st

_NUMBERS = (b"0", b"-1", b"1e999", b"99999999999999999999", b"2147483648", b"65536", b"NaN")
_PIECES = (
    b"\0",
    b"\xff\xfe",
    b"<",
    b">>",
    b"]]>",
    b"&#0;",
    b"\xf0\x9f",
    b"\x1b$B",
    b"(",
    b"\r",
    b";;;;",
    b"|",
)
_MAX_MUTATIONS = 8
_LONG = 4096

Mutation = Callable[[bytes], bytes]


def mutations() -> st.SearchStrategy[Mutation]:
    """Return a strategy of functions that damage a file: as it lies there, or within the parts of an archive."""
    steps = st.lists(_steps(), min_size=1, max_size=_MAX_MUTATIONS)
    return st.builds(_combine, steps, st.floats(0, 1, exclude_max=True), st.booleans())


def _steps() -> st.SearchStrategy[Mutation]:
    place = st.floats(0, 1, exclude_max=True)
    length = st.one_of(st.integers(1, 16), st.integers(1, _LONG))
    pieces = st.one_of(st.sampled_from(_PIECES), st.sampled_from(_NUMBERS), st.binary(min_size=1, max_size=8))
    return st.one_of(
        st.builds(_replace, place, pieces),
        st.builds(_insert, place, pieces, st.sampled_from((1, 1, 1, 200))),
        st.builds(_remove, place, length),
        st.builds(_repeat, place, length, st.sampled_from((1, 2, 64))),
        st.builds(_exchange_number, place, st.sampled_from(_NUMBERS)),
        st.builds(_cut_off, st.floats(0.05, 1, exclude_max=True)),
    )


def _combine(steps: list[Mutation], member: float, inside: bool) -> Mutation:
    def mutate(data: bytes) -> bytes:
        if inside and zipfile.is_zipfile(io.BytesIO(data)):
            return _in_member(data, member, steps)
        for step in steps:
            data = step(data)
        return data

    return mutate


def _in_member(data: bytes, member: float, steps: list[Mutation]) -> bytes:
    """Damage one part of an archive and pack it again, so that the damage gets past the unpacking."""
    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(data)) as source,
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target,
    ):
        names = sorted(source.namelist())
        chosen = names[int(member * len(names))]
        for name in names:
            content = source.read(name)
            if name == chosen:
                for step in steps:
                    content = step(content)
            target.writestr(name, content)
    return out.getvalue()


def _replace(place: float, piece: bytes) -> Mutation:
    def step(data: bytes) -> bytes:
        at = int(place * len(data))
        return data[:at] + piece + data[at + len(piece) :]

    return step


def _insert(place: float, piece: bytes, times: int) -> Mutation:
    def step(data: bytes) -> bytes:
        at = int(place * len(data))
        return data[:at] + piece * times + data[at:]

    return step


def _remove(place: float, length: int) -> Mutation:
    def step(data: bytes) -> bytes:
        at = int(place * len(data))
        return data[:at] + data[at + length :]

    return step


def _repeat(place: float, length: int, times: int) -> Mutation:
    def step(data: bytes) -> bytes:
        at = int(place * len(data))
        return data[:at] + data[at : at + length] * (times + 1) + data[at + length :]

    return step


def _exchange_number(place: float, number: bytes) -> Mutation:
    def step(data: bytes) -> bytes:
        start = int(place * len(data))
        while start < len(data) and not data[start : start + 1].isdigit():
            start += 1
        end = start
        while end < len(data) and data[end : end + 1].isdigit():
            end += 1
        return data[:start] + number + data[end:]

    return step


def _cut_off(share: float) -> Mutation:
    return lambda data: data[: int(share * len(data))]
