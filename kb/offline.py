"""Keeps libraries from reaching for the network; called by every entry point before heavy imports."""

from __future__ import annotations

import os

_VARIABLES = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "ANONYMIZED_TELEMETRY": "False",
    "CHROMA_PRODUCT_TELEMETRY_IMPL": "",
    "DO_NOT_TRACK": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "OTEL_SDK_DISABLED": "true",
}


def go_offline() -> None:
    """Set the switches of all libraries in use to offline, whatever the environment said before."""
    for name, value in _VARIABLES.items():
        if value:
            os.environ[name] = value
        else:
            os.environ.pop(name, None)
