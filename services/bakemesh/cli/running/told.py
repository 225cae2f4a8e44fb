"""What a Startup Supervisor tells, as `up` shows it: a line for people, an event for machines.

A component's state is shown when it is another one than was shown last, also over a restart of the Startup
Supervisor, which begins to tell from the start.
"""

from __future__ import annotations

from typing import Any

from bakemesh.cli.progress import counted

_PASSING = ("starting", "stopping")


class Told:
    """Makes lines out of its words; keeps what was shown."""

    def __init__(self) -> None:
        self._shown: dict[tuple[str, str], str] = {}

    def line(self, word: str, facts: dict[str, Any]) -> tuple[str, str] | None:
        """(head, text) of a line; None for what was shown already or is not for people."""
        node = facts.get("node", "?")
        match word:
            case "component":
                key, state = (str(facts.get("nodeid")), str(facts.get("name"))), str(facts.get("state"))
                before = self._shown.get(key)
                if before == state:
                    return None
                self._shown[key] = state
                if state in _PASSING or (before is None and state == "stopped"):
                    return None
                reason = f": {facts['reason']}" if facts.get("reason") and state != "ready" else ""
                return key[1], f"{state} on node {node}{reason}"
            case "announced":
                count = len(facts.get("components") or ())
                return "startup", (
                    f"Psyclone.Ready: {facts.get('psyspec')} on node {node}, {counted(count, 'component')}"
                )
            case "reconciled":
                return "startup", f"reconciled node {node}: {changes(facts)}"
            case "failed":
                return "startup", (
                    f"bring-up of node {node} failed, again in {facts.get('pause_s')} s: {facts.get('why')}"
                )
            case "missing":
                wait = counted(int(facts.get("components") or 0), "component")
                return "startup", f"node {node} is not there yet; {wait} will be brought up when it comes"
            case "held" | "unheard":
                moving, others = ", ".join(facts.get("components") or ()), ", ".join(facts.get("on") or ())
                if word == "held":
                    return "startup", f"node {node} waits until {moving} is gone from {others}"
                return "startup", (
                    f"node {node} gets {moving} now: {others} is away, and loses it when it is heard again"
                )
            case "given":
                return "startup", f"PsySpec {facts.get('psyspec')} counts from now on"
        return None


def changes(facts: dict[str, Any]) -> str:
    """What a reconcile did, in words."""
    words = [
        f"{word} {', '.join(facts[word])}" for word in ("added", "removed", "restarted") if facts.get(word)
    ]
    words.append(f"{facts.get('unchanged', 0)} unchanged")
    return "; ".join(words)
