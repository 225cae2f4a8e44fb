"""Looks at what this machine and its bus have and lack, and says how to mend it.

Exit code 1 where something that is needed is missing; warnings alone are exit code 0.
"""

from __future__ import annotations

import argparse

from bakemesh.cli import link
from bakemesh.cli.call import Call
from bakemesh.cli.exits import Exit
from bakemesh.settings import add_flags

EXAMPLE = "  bakemesh doctor --nats nats://10.0.0.5:4222"


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    add_flags(parser, ("nats", "mesh", "supervisor", "creds", "state"))


def run(call: Call) -> int:
    """Prints the findings."""
    from bakemesh.cli import checks

    settings = call.settings
    findings = list(checks.machine(settings))
    findings += link.run(checks.bus(settings, link.open_supervisor(settings)))
    missing = [finding for finding in findings if finding.state is checks.State.MISSING]
    if call.screen.machine:
        call.screen.document({"ok": not missing, "findings": [finding.fields() for finding in findings]})
    else:
        for finding in findings:
            call.screen.say(f"{finding.state.value:8} {finding.matter:15} {finding.found}")
            if finding.mend:
                call.screen.say(f"{'':24} → {finding.mend}")
    return Exit.FAILED if missing else Exit.DONE
