from __future__ import annotations

from email.message import EmailMessage
from pathlib import Path

import pytest

from ingest.formats import CSV, EMAIL, HTML, MARKDOWN, TEXT, XML
from ingest.parsers.csv import sniff_delimiter
from kb.errors import EmptyFileError, NoTextFoundError
from kb.types import BlockKind
from tests.unit.ingest.parsing import outline, parse, records, texts


def test_text_has_paragraphs_headings_and_lists(tmp_path: Path) -> None:
    text = "第一章 安全\n\n停机后再检查。\n\n1.1 上锁\n挂牌上锁。\n- 钥匙\n- 挂锁\n"

    parsed = parse(tmp_path, text.encode("gb18030"), TEXT)

    assert outline(parsed.pages[0]) == [
        ("heading1", "第一章 安全"),
        ("paragraph", "停机后再检查。"),
        ("heading2", "1.1 上锁"),
        ("paragraph", "挂牌上锁。"),
        ("list_item", "- 钥匙"),
        ("list_item", "- 挂锁"),
    ]
    assert parsed.title == "第一章 安全"
    assert parsed.metadata["encoding"] == "gb18030"


def test_text_wrapped_by_hand_is_joined(tmp_path: Path) -> None:
    text = (
        "The pump delivers oil to the cylinder through the valve block,\r\n"
        "and the filter keeps particles away from the servo valves.\r\n"
        "Short end.\r\nNext paragraph of this text file begins here.\r\n"
    )

    assert texts(parse(tmp_path, text.encode(), TEXT).pages[0]) == [
        "The pump delivers oil to the cylinder through the valve block, "
        "and the filter keeps particles away from the servo valves. Short end.",
        "Next paragraph of this text file begins here.",
    ]


def test_white_space_alone_is_an_empty_file(tmp_path: Path) -> None:
    with pytest.raises(EmptyFileError):
        parse(tmp_path, b" \n\t\n", TEXT)


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("a,b\n1,2\n", ","),
        ("a;b\n1,5;2,5\n3,1;4,2\n", ";"),
        ("a\tb\n1\t2\n", "\t"),
        ("a|b\n1|2\n", "|"),
        ("名称，数量\n油，2\n", "，"),
        ("one column\n", ","),
        ("", ","),
    ],
)
def test_the_delimiter_is_found(text: str, delimiter: str) -> None:
    assert sniff_delimiter(text) == delimiter


def test_csv_rows_are_records(tmp_path: Path) -> None:
    data = '件号;名称;库位\nBRG-6217;"深沟球\n轴承";A9-17\nBRG-6218;;B1\n'.encode("gb18030")

    page = parse(tmp_path, data, CSV).pages[0]

    assert records(page) == [
        {"件号": "BRG-6217", "名称": "深沟球轴承", "库位": "A9-17"},
        {"件号": "BRG-6218", "名称": "", "库位": "B1"},
    ]


def test_csv_title_lines_stand_above_the_table(tmp_path: Path) -> None:
    parsed = parse(tmp_path, b"Parts list,,\nNo,Name,Bin\n1,oil,A\n", CSV)

    assert outline(parsed.pages[0])[0] == ("paragraph", "Parts list")
    assert records(parsed.pages[0]) == [{"No": "1", "Name": "oil", "Bin": "A"}]
    assert parsed.title == "Parts list"


def test_csv_without_cells_is_an_empty_file(tmp_path: Path) -> None:
    with pytest.raises(EmptyFileError):
        parse(tmp_path, b",,\n,,\n", CSV)


PAGE = """<!DOCTYPE html><html><head><meta charset="gb2312"><title>值班制度</title><script>var x=1</script>
<style>p{color:red}</style></head><body><nav>Home</nav><h1>夜班</h1><p>每班<b>两人</b>值守。<br>不得离岗。</p>
<ul><li>带钥匙<li>带对讲机</ul><div hidden>secret</div><p style="display: none">x-hidden</p>
<table><caption>电话</caption><tr><th>部门</th><th>号码</th></tr><tr><td rowspan=2>机修</td><td>8001</td></tr>
<tr><td>8002</td></tr></table><pre>a  b
  c</pre><img src="x.png" alt="压机照片"><!-- comment --></body></html>"""


def test_html_shows_what_a_reader_sees(tmp_path: Path) -> None:
    parsed = parse(tmp_path, PAGE.encode("gb18030"), HTML)

    assert outline(parsed.pages[0]) == [
        ("heading1", "值班制度"),
        ("heading1", "夜班"),
        ("paragraph", "每班两人值守。不得离岗。"),
        ("list_item", "带钥匙"),
        ("list_item", "带对讲机"),
        ("paragraph", "电话"),
        ("table_header", "部门 | 号码"),
        ("table_row", "机修 | 8001"),
        ("table_row", "机修 | 8002"),
        ("code", "a  b\n  c"),
        ("paragraph", "压机照片"),
    ]
    assert parsed.title == "值班制度"


def test_html_tables_for_layout_are_read_as_text(tmp_path: Path) -> None:
    inner = "<table><tr><td>A</td><td>B</td></tr><tr><td>1</td><td>2</td></tr></table>"
    page = f"<table><tr><td>left{inner}</td></tr></table>"
    single = "<table><tr><td>only</td></tr></table>"

    read = parse(tmp_path, (page + single).encode(), HTML).pages[0]

    assert records(read) == [{"A": "1", "B": "2"}]
    assert texts(read, BlockKind.PARAGRAPH) == ["left", "only"]


def test_html_table_titles_and_headers_without_marks(tmp_path: Path) -> None:
    page = (
        "<table><tr><td colspan=2>Limits</td></tr><tr><td>Item</td><td>Max</td></tr>"
        "<tr><td>Oil</td><td>60</td></tr></table>"
    )

    read = parse(tmp_path, page.encode(), HTML).pages[0]

    assert outline(read)[0] == ("paragraph", "Limits")
    assert records(read) == [{"Item": "Oil", "Max": "60"}]


def test_deeply_nested_html_is_read(tmp_path: Path) -> None:
    page = "<div>" * 5000 + "deep" + "</div>" * 5000

    assert "deep" in parse(tmp_path, page.encode(), HTML).pages[0].text


def test_html_without_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoTextFoundError):
        parse(tmp_path, b"<html><script>x</script></html>", HTML)


def test_xml_elements_are_blocks(tmp_path: Path) -> None:
    data = '<?xml version="1.0" encoding="gb2312"?><parts><part>轴承</part><part>滤芯</part></parts>'.encode(
        "gb18030"
    )

    assert texts(parse(tmp_path, data, XML).pages[0]) == ["轴承", "滤芯"]


NOTE = """---
title: "Shift note"
---
# Night shift

Check *all* `valves`
and [pumps](http://x).

- first
- second
  1. inner

| Code | Cause |
|------|-------|
| E07  | hot<br>oil |

```
ssh plc
```

<div>raw <b>html</b></div>

![the press](p.png)
"""


def test_markdown_keeps_its_roles(tmp_path: Path) -> None:
    parsed = parse(tmp_path, NOTE.encode(), MARKDOWN)

    assert outline(parsed.pages[0]) == [
        ("heading1", "Night shift"),
        ("paragraph", "Check all valves and pumps."),
        ("list_item", "first"),
        ("list_item", "second"),
        ("list_item", "inner"),
        ("table_header", "Code | Cause"),
        ("table_row", "E07 | hot oil"),
        ("code", "ssh plc"),
        ("paragraph", "raw html"),
        ("paragraph", "the press"),
    ]
    assert records(parsed.pages[0]) == [{"Code": "E07", "Cause": "hot oil"}]
    assert parsed.title == "Shift note"


def test_markdown_without_text_is_an_empty_file(tmp_path: Path) -> None:
    with pytest.raises(EmptyFileError):
        parse(tmp_path, b"\n\n---\n", MARKDOWN)


MAIL = (
    b"""From: =?utf-8?b?546L5bel?= <wang@plant>
To: all@plant
Subject: =?utf-8?q?Oil_=E2=98=B8?=
Date: Mon, 6 May 2024 08:00:00 +0800
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary=b

--b
Content-Type: text/html; charset=gb2312
Content-Transfer-Encoding: 8bit

<p>"""
    + "请换油".encode("gb2312")
    + b"""</p>
--b
Content-Type: text/plain
Content-Disposition: attachment; filename=log.txt

x
--b--
"""
)


def test_mail_has_subject_people_body_and_names_its_attachments(tmp_path: Path) -> None:
    parsed = parse(tmp_path, MAIL, EMAIL)

    assert texts(parsed.pages[0]) == [
        "Oil ☸",
        "From: 王工 <wang@plant>",
        "To: all@plant",
        "Date: Mon, 06 May 2024 08:00:00 +0800",
        "Attachments: log.txt",
        "请换油",
    ]
    assert parsed.title == "Oil ☸"
    assert (parsed.warnings, parsed.attachment_count) == ((), 1)


def test_mail_without_a_word_is_read_if_something_is_attached(tmp_path: Path) -> None:
    mail = EmailMessage()
    mail.add_attachment(b"%PDF-", "application", "pdf", filename="扫描.pdf")

    parsed = parse(tmp_path, mail.as_bytes(), EMAIL)

    assert texts(parsed.pages[0])[-1] == "Attachments: 扫描.pdf"
    assert parsed.attachment_count == 1


def test_texts_beside_the_body_are_read_and_other_forms_of_it_are_not(tmp_path: Path) -> None:
    mail = EmailMessage()
    mail.set_content("Drain the oil.")
    mail.add_alternative("<p>Drain the oil!</p>", subtype="html")
    mail.add_attachment("This list is moderated.", disposition="inline")

    parsed = parse(tmp_path, mail.as_bytes(), EMAIL)

    assert texts(parsed.pages[0]) == ["Drain the oil.", "This list is moderated."]
    assert parsed.attachment_count == 0


def test_mail_without_content_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoTextFoundError):
        parse(tmp_path, b"From: a@b\n\n", EMAIL)


def test_a_line_that_tells_excel_the_delimiter_is_no_row(tmp_path: Path) -> None:
    parsed = parse(tmp_path, b"sep=|\r\nCode|Cause\r\nE-1|a, b; c\r\n", CSV)

    assert records(parsed.pages[0]) == [{"Code": "E-1", "Cause": "a, b; c"}]
    assert "sep=" not in parsed.pages[0].text


def test_lines_above_a_table_are_parted_from_it_by_a_blank_line(tmp_path: Path) -> None:
    data = b"Export 2024-05-01, line 4\n\nCode,Cause\nE-1,hot\nE-2,cold\n"

    parsed = parse(tmp_path, data, CSV)

    assert texts(parsed.pages[0], BlockKind.PARAGRAPH) == ["Export 2024-05-01, line 4"]
    assert records(parsed.pages[0]) == [{"Code": "E-1", "Cause": "hot"}, {"Code": "E-2", "Cause": "cold"}]


@pytest.mark.parametrize("encoding", ["utf-8", "gb18030"])
def test_mail_headers_in_raw_bytes_are_decoded(tmp_path: Path, encoding: str) -> None:
    data = "Subject: 液压站报警代码\nFrom: 张三 <a@plant>\n\nsee below\n".encode(encoding)

    parsed = parse(tmp_path, data, EMAIL)

    assert parsed.title == "液压站报警代码"
    assert "From: 张三 <a@plant>" in parsed.pages[0].text


def test_tables_in_html_mails_keep_their_rows(tmp_path: Path) -> None:
    body = "<p>See:</p><table><tr><th>Code<th>Remedy<tr><td>E-1<td>refill<tr><td>E-2<td>clean</table>"
    data = f"Subject: Alarms\nContent-Type: text/html; charset=utf-8\n\n{body}\n".encode()

    parsed = parse(tmp_path, data, EMAIL)

    assert records(parsed.pages[0]) == [
        {"Code": "E-1", "Remedy": "refill"},
        {"Code": "E-2", "Remedy": "clean"},
    ]
