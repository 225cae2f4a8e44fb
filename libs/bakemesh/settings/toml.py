"""Reading `bakemesh.toml`, and where it is looked for.

Keys are the settings' names in kebab-case, at the top level. An unknown key is a problem with the nearest
known name, never ignored: a typo that is passed over in silence costs a day.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path

from bakemesh.settings.table import ROWS, known
from bakemesh.settings.values import Refused, SettingRefused


def find_toml(explicit: str | None, environ: Mapping[str, str], folder: Path) -> Path | None:
    """The file to read: `explicit` (`--config`), `BAKEMESH_CONFIG`, then the first that exists of `folder`'s
    bakemesh.toml, `$XDG_CONFIG_HOME/bakemesh/bakemesh.toml` and /etc/bakemesh/bakemesh.toml.
    """
    named = explicit or environ.get("BAKEMESH_CONFIG")
    if named:
        return Path(named).expanduser()
    home = environ.get("HOME")
    config = environ.get("XDG_CONFIG_HOME") or (f"{home}/.config" if home else None)
    places = [folder / "bakemesh.toml"]
    if config:
        places.append(Path(config) / "bakemesh" / "bakemesh.toml")
    places.append(Path("/etc/bakemesh/bakemesh.toml"))
    return next((place for place in places if place.is_file()), None)


def read_toml(path: Path) -> dict[str, object]:
    """Key → value. Raises SettingRefused where the file cannot be read or holds what no setting is called."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = f"cannot be read: {error.strerror}; name an existing file"
        raise SettingRefused([Refused("config", str(path), reason)]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingRefused([Refused("config", str(path), f"is no valid TOML: {error}")]) from None
    keys = [row.key for row in ROWS]
    problems = []
    for key in found:
        if not known(key):
            near = difflib.get_close_matches(key, keys, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are: {', '.join(keys)}"
            problems.append(Refused(key, str(path), f"is no setting; {hint}"))
    if problems:
        raise SettingRefused(problems)
    return {key.replace("_", "-"): value for key, value in found.items()}
