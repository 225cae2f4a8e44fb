"""A newer version of this package, installed a second time in a folder: what an upgrade meets.

It is the checkout's own code with another version number, one entry more in its SystemStatus and one kind
of step more, so that there is something that the older one does not know.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = ("protocol", "libs", "services")
VERSION, STEP_KIND, ENTRY = "99.0.0", "teleport", "mood"


def install(folder: Path) -> Mapping[str, str]:
    """Makes it in `folder`; gives the environment of who runs it."""
    for part in PARTS:
        shutil.copytree(
            ROOT / part / "bakemesh", folder / part / "bakemesh", ignore=shutil.ignore_patterns("__pycache__")
        )
    meta = folder / "meta" / f"bakemesh-{VERSION}.dist-info"
    meta.mkdir(parents=True)
    (meta / "METADATA").write_text(f"Metadata-Version: 2.1\nName: bakemesh\nVersion: {VERSION}\n")
    _change(
        folder / "protocol/bakemesh/protocol/builder/messages.py",
        "    storefull: Flag = False\n",
        f'    storefull: Flag = False\n    {ENTRY}: str = "sunny"\n',
    )
    _change(
        folder / "services/bakemesh/builder/presence.py",
        "sorted(SUPPORTED)",
        f'sorted({{*SUPPORTED, "{STEP_KIND}"}})',
    )
    paths = [folder / "meta", *(folder / part for part in PARTS)]
    return {"PYTHONPATH": ":".join(map(str, paths))}


def _change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, f"{path}: {old!r} is there {text.count(old)} times"
    path.write_text(text.replace(old, new))
