"""Make the sample documents again from `source/`: `python sample_docs/build.py [--check] [--font PATH]`.

The same sources, font and library versions give the same bytes; `built_with.toml` says which made the files
that are committed. `--check` writes nothing and exits with 0 if those files are up to date, 1 if a source has
changed since, and 3 if this machine lacks that font or those versions, so that nothing can be said.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
import tomllib
import zlib
from importlib.metadata import version
from pathlib import Path

from builder import blocks, fonts, manual, notice, policy, sheet

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "source"
TOOLS = HERE / "built_with.toml"
LIBRARIES = ("reportlab", "pillow", "numpy", "openpyxl", "python-docx", "lxml", "markdown-it-py")
UP_TO_DATE, STALE, CANNOT_TELL = 0, 1, 3


def build_all(target: Path, *, font: Path) -> list[str]:
    """Write every built document into `target`; returns their names."""
    fonts.register_font(font)
    for name in ("press_manual_zh", "drive_manual_en"):
        manual.write_manual(blocks.read_source(SOURCE / f"{name}.md"), target / f"{name}.pdf")
    sheet.write_workbook(SOURCE / "inspection_sheet_zh.toml", target / "inspection_sheet_zh.xlsx")
    policy.write_policy(blocks.read_source(SOURCE / "it_policy_en.md"), target / "it_policy_en.docx")
    notice.write_scan(SOURCE / "scanned_notice_zh.toml", target / "scanned_notice_zh.pdf", font=font)
    rules = (SOURCE / "safety_rules_zh.txt").read_text("utf-8").replace("\n", "\r\n")
    (target / "safety_rules_gb18030.txt").write_bytes(rules.encode("gb18030"))
    return sorted(path.name for path in target.iterdir())


def tools_used(font: Path) -> dict[str, str]:
    """Return what the bytes depend on besides the sources: font and library versions."""
    used = {name: version(name) for name in LIBRARIES}
    used["zlib"] = zlib.ZLIB_RUNTIME_VERSION
    used["font"] = hashlib.sha256(font.read_bytes()).hexdigest()
    return used


def check(font: Path) -> int:
    """Compare a fresh build with the committed files; returns the exit status."""
    built_with = tomllib.loads(TOOLS.read_text("utf-8"))
    other = [name for name, value in tools_used(font).items() if built_with.get(name) != value]
    if other:
        print(f"cannot tell: built with other versions of {', '.join(other)}")
        return CANNOT_TELL
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder)
        names = build_all(target, font=font)
        stale = [name for name in names if not _same(target / name, HERE / name)]
    if stale:
        print(f"not up to date: {', '.join(stale)}; run python sample_docs/build.py")
        return STALE
    print(f"up to date: {', '.join(names)}")
    return UP_TO_DATE


def _same(fresh: Path, committed: Path) -> bool:
    return committed.is_file() and fresh.read_bytes() == committed.read_bytes()


def build(font: Path) -> int:
    """Replace the built files and the record of what made them; returns the exit status."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder)
        for name in build_all(target, font=font):
            content = (target / name).read_bytes()
            (HERE / name).write_bytes(content)
            print(f"{name}  {len(content):,} bytes")
    lines = [f'"{name}" = "{value}"' for name, value in sorted(tools_used(font).items())]
    TOOLS.write_text("# What made the built files, written by build.py.\n" + "\n".join(lines) + "\n", "utf-8")
    return UP_TO_DATE


def main() -> int:
    """Parse the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Build the sample documents from source/.")
    parser.add_argument(
        "--check", action="store_true", help="only say whether the built files are up to date"
    )
    parser.add_argument("--font", type=Path, help=f"path of {fonts.FONT_NAME}")
    arguments = parser.parse_args()
    try:
        font = fonts.find_font(arguments.font)
    except fonts.FontMissingError as error:
        print(f"cannot tell: {error}", file=sys.stderr)
        return CANNOT_TELL
    return check(font) if arguments.check else build(font)


if __name__ == "__main__":
    sys.exit(main())
