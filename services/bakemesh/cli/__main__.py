"""`bakemesh VERB …`: finds the verb, runs it, turns whatever goes wrong into one line and an exit code."""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from bakemesh.cli.call import Call
from bakemesh.cli.exits import Exit, usage
from bakemesh.cli.failures import explain
from bakemesh.cli.screen import Screen
from bakemesh.cli.verbs import VERBS

_EPILOG = """\
Settings come from flags, then BAKEMESH_… variables, then bakemesh.toml, then defaults: see `bakemesh config`.
Every verb has --help with an example, and --json for machines.

exit codes: 0 done, 1 failed, 2 usage, spec or input error, 3 cancelled, 4 integrity error, 5 bus unreachable
or no Builder on that node, 6 the node has a Builder already, 130 interrupted before anything was sent
"""


class _Parser(argparse.ArgumentParser):
    """argparse whose errors are our one line."""

    def error(self, message: str) -> NoReturn:
        """Ends with a usage error."""
        raise usage(f"{message}; see {self.prog} --help")


def main(argv: Sequence[str]) -> int:
    """Runs the command line and returns its exit code."""
    debug = "--debug" in argv
    try:
        # Whoever started this may have held Ctrl-C back, so that it does not hit an interpreter half made.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        return _run(list(argv))
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output is gone; there is nobody to tell, and the interpreter must not try at its
        # end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return Exit.FAILED
    except Exception as error:  # noqa: BLE001  # the border: every error ends as a line and a code
        if debug:
            import traceback

            traceback.print_exception(error)
        stopped = explain(error)
        for line in stopped.lines:
            print(f"bakemesh: {line}" if line is stopped.lines[0] else line, file=sys.stderr)
        return stopped.code


def _run(argv: list[str]) -> int:
    verb, rest = (argv[0], argv[1:]) if argv else ("--help", [])
    if verb in ("--help", "-h", "help"):
        print(_help())
        return Exit.DONE
    if verb == "--version":
        from importlib.metadata import version

        print(f"bakemesh {version('bakemesh')}")
        return Exit.DONE
    if verb not in VERBS:
        near = difflib.get_close_matches(verb, VERBS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"the verbs are {', '.join(VERBS)}"
        raise usage(f"no verb {verb!r}; {hint}")
    module = importlib.import_module(f"bakemesh.cli.verbs.{verb.replace('-', '_')}")
    parser = _Parser(
        prog=f"bakemesh {verb}",
        description=module.__doc__,
        epilog=f"example:\n{module.EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add(parser)
    parser.add_argument(
        "--json", action="store_true", help="for machines: a JSON document, or a JSON line an event"
    )
    parser.add_argument("--debug", action="store_true", help="with an error, show where it comes from")
    args = parser.parse_args(rest)
    code: int = module.run(Call(args, Screen(machine=args.json)))
    return code


def _help() -> str:
    lines = ["usage: bakemesh VERB …", "", "Bakes recipes on the nodes of a mesh.", ""]
    lines += [f"  {verb:9} {text}" for verb, text in VERBS.items()]
    return "\n".join([*lines, "", _EPILOG.rstrip()])


def entry() -> NoReturn:
    """The console script."""
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    entry()
