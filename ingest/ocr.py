"""OCR by rapidocr: lines with boxes and confidence from a picture, offline, loaded at first use."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ingest.characters import clean_line
from kb.types import Box

# Below this the recogniser guesses; measured on scans at 200 dpi, right lines score 0.8 and more.
_MIN_CONFIDENCE = 0.5
_MAX_SIDE_PIXELS = 4000


@dataclass(frozen=True, slots=True)
class OcrLine:
    """One line read from a picture; the box is in pixels, `confidence` is 0..1."""

    text: str
    box: Box
    confidence: float


class OcrEngine:
    """Reads Chinese and English from pictures; not for several threads at once."""

    def __init__(self, *, threads: int = 2) -> None:
        self._threads = threads
        self._engine: Any = None

    def read(self, image: npt.NDArray[np.uint8]) -> list[OcrLine]:
        """Return the lines of an RGB picture of shape (height, width, 3), in no certain order."""
        if self._engine is None:
            self._engine = _load(self._threads)
        # rapidocr expects the channel order of OpenCV.
        result = self._engine(np.ascontiguousarray(image[:, :, ::-1]))
        if result.boxes is None or result.txts is None:
            return []
        lines = []
        for corners, raw, confidence in zip(result.boxes, result.txts, result.scores, strict=True):
            text = clean_line(raw)
            if text and confidence >= _MIN_CONFIDENCE:
                xs, ys = [float(x) for x, _ in corners], [float(y) for _, y in corners]
                lines.append(OcrLine(text, Box(min(xs), min(ys), max(xs), max(ys)), float(confidence)))
        return lines


def mean_confidence(lines: Sequence[OcrLine]) -> float | None:
    """Return the mean weighted by characters, None without lines."""
    if not lines:
        return None
    return round(
        statistics.fmean([line.confidence for line in lines], weights=[len(line.text) for line in lines]), 4
    )


def _load(threads: int) -> Any:
    """Return the engine with the models that lie in rapidocr's own wheel."""
    import onnxruntime
    from rapidocr import RapidOCR

    logging.getLogger("RapidOCR").setLevel(logging.ERROR)
    onnxruntime.set_default_logger_severity(3)
    return RapidOCR(
        params={
            "Global.log_level": "error",
            "Global.max_side_len": _MAX_SIDE_PIXELS,
            "EngineConfig.onnxruntime.intra_op_num_threads": threads,
            "EngineConfig.onnxruntime.inter_op_num_threads": 1,
        }
    )
