"""What is taken out of mails and PDFs, and what is left in them."""

from __future__ import annotations

import io
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from ingest.extraction import extract
from ingest.formats import EMAIL, PDF, TEXT
from ingest.parsers.pdf import PdfParser
from kb.ports import AttachmentLimits
from tests.unit.ingest.pdf_samples import PROSE, draw, embed, paragraph, pin

NO_LIMIT = AttachmentLimits(100, 10**6, 10**7)


def take(
    folder: Path,
    data: bytes,
    media_type: str = EMAIL,
    *,
    password: str | None = None,
    limits: AttachmentLimits = NO_LIMIT,
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return what was taken by name, and what `extract` says."""
    (folder / "out").mkdir()
    (folder / "in").write_bytes(data)
    said = extract(folder / "in", media_type, password=password, limits=limits, folder=folder / "out")
    paths = sorted((folder / "out").iterdir(), key=lambda path: int(path.name))
    return dict(zip(said["taken"], [path.read_bytes() for path in paths], strict=True)), said


def mail(subject: str = "Offer") -> EmailMessage:
    message = EmailMessage()
    message["Subject"] = subject
    message["From"] = "a@plant"
    message.set_content("See the files.")
    return message


def picture(width: int, height: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), "white").save(buffer, "PNG")
    return buffer.getvalue()


# -- mail


def test_attachments_are_taken_in_order_with_clean_and_different_names(tmp_path: Path) -> None:
    message = mail()
    message.add_attachment(b"1", "application", "pdf", filename="..\\..\\etc/故障 代码.pdf")
    message.add_attachment(b"2", "application", "pdf", filename="/tmp/故障 代码.PDF")
    message.add_attachment("3", filename="../x")
    message.add_attachment(b"4", "text", "csv")

    taken, said = take(tmp_path, message.as_bytes())

    assert taken == {"故障 代码.pdf": b"1", "故障 代码 (2).PDF": b"2", "x": b"3\n", "attachment.csv": b"4"}
    assert (said["left_out"], said["skipped"]) == ([], [])


def test_an_attached_message_is_one_file_with_its_own_attachments_in_it(tmp_path: Path) -> None:
    inner = mail("Re: v1.2")
    inner.add_attachment(b"deep", "application", "pdf", filename="deep.pdf")
    message = mail()
    message.add_attachment(inner)

    taken, _ = take(tmp_path, message.as_bytes())

    assert list(taken) == ["Re: v1.2.eml"]
    (tmp_path / "next").mkdir()
    again, _ = take(tmp_path / "next", next(iter(taken.values())))
    assert again == {"deep.pdf": b"deep"}


def test_a_message_that_was_attached_in_base64_is_decoded(tmp_path: Path) -> None:
    raw = b"""Content-Type: multipart/mixed; boundary=b

--b
Content-Type: message/rfc822
Content-Transfer-Encoding: base64

U3ViamVjdDogSW5uZXIKCkhlbGxv
--b--
"""

    taken, _ = take(tmp_path, raw)

    assert taken == {"message.eml": b"Subject: Inner\n\nHello"}


def test_a_mail_that_is_nothing_but_a_file_has_it_attached(tmp_path: Path) -> None:
    raw = b"Subject: Scan\nContent-Type: application/pdf; name=scan.pdf\n"

    taken, _ = take(tmp_path, raw + b"Content-Transfer-Encoding: base64\n\nJVBERg==\n")

    assert taken == {"scan.pdf": b"%PDF"}


def test_files_between_the_forms_of_a_body_are_found(tmp_path: Path) -> None:
    raw = b"""Content-Type: multipart/alternative; boundary=a

--a
Content-Type: text/plain

See below.
--a
Content-Type: multipart/mixed; boundary=m

--m
Content-Type: text/html

<p>See below.</p>
--m
Content-Type: application/pdf; name=plan.pdf
Content-Disposition: inline; filename=plan.pdf

%PDF
--m
Content-Type: text/html

<p>Regards</p>
--m--
--a--
"""

    taken, said = take(tmp_path, raw)

    assert list(taken) == ["plan.pdf"]
    assert (said["left_out"], said["skipped"]) == ([], [])


def test_parts_that_are_no_documents_are_skipped_by_name(tmp_path: Path) -> None:
    message = mail()
    message.add_related(picture(120, 60), "image", "png", cid="<logo>", filename="logo.png")
    message.add_related(picture(900, 20), "image", "png", cid="<line>")
    message.add_related(picture(640, 480), "image", "png", cid="<screen>", filename="screen.png")
    message.add_attachment(picture(50, 50), "image", "png", filename="icon.png")
    message.add_attachment("BEGIN:VCALENDAR", subtype="calendar", filename="invite.ics")
    message.add_attachment(b"sig", "application", "pkcs7-signature", filename="smime.p7s")

    taken, said = take(tmp_path, message.as_bytes())

    assert list(taken) == ["screen.png", "icon.png"]
    assert said["skipped"] == [
        ("logo.png", "small_picture"),
        ("picture.png", "small_picture"),
        ("invite.ics", "calendar"),
        ("smime.p7s", "signature"),
    ]


def test_notes_about_the_delivery_are_skipped_and_the_returned_mail_is_not(tmp_path: Path) -> None:
    raw = b"""Content-Type: multipart/report; boundary=b

--b
Content-Type: text/plain

Not delivered.
--b
Content-Type: message/delivery-status

Reporting-MTA: dns; plant

--b
Content-Type: message/rfc822

Subject: Oil

Change it.
--b--
"""

    taken, said = take(tmp_path, raw)

    assert list(taken) == ["Oil.eml"]
    assert [reason for _, reason in said["skipped"]] == ["delivery"]


def test_a_broken_header_of_a_part_does_not_hide_the_part(tmp_path: Path) -> None:
    raw = b"""Content-Type: multipart/mixed; boundary=b

--b
Content-Type: application/octet-stream
Content-Disposition: attachment; filename*=x'; filename="

data
--b--
"""

    taken, _ = take(tmp_path, raw)

    assert list(taken.values()) == [b"data"]


# -- PDF


def test_embedded_files_are_taken_out_of_a_pdf(tmp_path: Path) -> None:
    data = embed(draw(lambda c: paragraph(c, 72, 100, PROSE)), {"数据.csv": b"a;b", "x/y.txt": b"hello"})

    taken, _ = take(tmp_path, data, PDF)

    assert taken == {"数据.csv": b"a;b", "y.txt": b"hello"}


def test_files_pinned_to_pages_are_taken_out_of_a_pdf(tmp_path: Path) -> None:
    pages = draw(*[lambda c: paragraph(c, 72, 100, PROSE)] * 3)
    data = pin(
        embed(pages, {"a.txt": b"of the document"}), {"数据.csv": b"a;b", "a.txt": b"pinned"}, page_index=2
    )
    path = tmp_path / "m.pdf"
    path.write_bytes(data)

    taken, _ = take(tmp_path, data, PDF)
    parsed = PdfParser(engine=None, max_pages=9).parse(
        path, name="m.pdf", password=None, progress=lambda _done, _total: None
    )

    assert taken == {"a.txt": b"of the document", "数据.csv": b"a;b", "a (2).txt": b"pinned"}
    assert parsed.attachment_count == 3


def test_a_password_opens_what_is_embedded(tmp_path: Path) -> None:
    plain = embed(draw(lambda c: paragraph(c, 72, 100, PROSE)), {"a.txt": b"hello"})
    from pypdf import PdfReader, PdfWriter

    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(plain)))
    writer.encrypt("secret", algorithm="AES-256")
    buffer = io.BytesIO()
    writer.write(buffer)

    taken, _ = take(tmp_path, buffer.getvalue(), PDF, password="secret")

    assert taken == {"a.txt": b"hello"}


def test_other_formats_have_nothing_attached(tmp_path: Path) -> None:
    assert take(tmp_path, b"hello", TEXT)[1] == {"taken": [], "left_out": [], "skipped": []}


# -- limits


@pytest.mark.parametrize(
    ("limits", "taken", "left_out"),
    [
        (AttachmentLimits(1, 100, 100), ["a.txt"], [("b.txt", "too_many"), ("c.txt", "too_many")]),
        (AttachmentLimits(9, 10, 100), ["a.txt", "c.txt"], [("b.txt", "too_large")]),
        (AttachmentLimits(9, 100, 15), ["a.txt", "c.txt"], [("b.txt", "too_large")]),
        (AttachmentLimits(0, 0, 0), [], [(name, "too_many") for name in ("a.txt", "b.txt", "c.txt")]),
    ],
)
def test_what_is_over_a_limit_is_named_and_not_written(
    tmp_path: Path, limits: AttachmentLimits, taken: list[str], left_out: list[tuple[str, str]]
) -> None:
    message = mail()
    for name, size in (("a.txt", 5), ("b.txt", 20), ("c.txt", 5)):
        message.add_attachment(b"x" * size, "application", "octet-stream", filename=name)

    written, said = take(tmp_path, message.as_bytes(), limits=limits)

    assert list(written) == taken
    assert said["left_out"] == left_out


def test_an_empty_attachment_is_left_out(tmp_path: Path) -> None:
    message = mail()
    message.add_attachment(b"", "application", "pdf", filename="empty.pdf")

    assert take(tmp_path, message.as_bytes())[1]["left_out"] == [("empty.pdf", "empty")]
