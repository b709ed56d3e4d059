"""Office files with the same bytes each time: they are zip archives that carry the time of writing."""

from __future__ import annotations

import re
import zipfile
from datetime import datetime
from io import BytesIO
from pathlib import Path

DATE = datetime(2024, 7, 1)  # noqa: DTZ001 - both libraries want a time without a zone
_STAMP = re.compile(rb"(<dcterms:(?:created|modified)[^>]*>)[^<]*(<)")


def write_reproducibly(content: bytes, target: Path) -> None:
    """Write the archive `content` to `target` with every date set to `DATE`."""
    fixed = DATE.strftime("%Y-%m-%dT%H:%M:%SZ").encode()
    with (
        zipfile.ZipFile(BytesIO(content)) as old,
        zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as new,
    ):
        for name in old.namelist():
            data = old.read(name)
            if name == "docProps/core.xml":
                data = _STAMP.sub(rb"\g<1>" + fixed + rb"\g<2>", data)
            info = zipfile.ZipInfo(name, DATE.timetuple()[:6])
            info.compress_type = zipfile.ZIP_DEFLATED
            new.writestr(info, data)
