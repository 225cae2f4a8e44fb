"""A chat: each line that you write is a turn, and the model answers; the end of input (Ctrl-D) ends it,
Ctrl-C an answer. With a text as argument: one turn. --json: a line a token, then one a turn."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from bakemesh.cli import speaking
from bakemesh.cli.call import Call
from bakemesh.cli.exits import Exit, Stopped
from bakemesh.cli.inferring import add_call, add_sampling, connection, require, sampling_options

if TYPE_CHECKING:
    from bakemesh.inference import Text
    from bakemesh.inference.blocking import Inference

EXAMPLE = """\
  bakemesh chat --model small
  bakemesh chat --model small --system "Answer in one word." "What is the capital of France?\""""


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument(
        "text", nargs="*", metavar="TEXT", help="one turn; without any: a turn a line of stdin"
    )
    parser.add_argument("--system", metavar="TEXT", help="what the model is told before the first turn")
    add_sampling(parser)
    add_call(parser, "generative model")


def run(call: Call) -> int:
    """Chats."""
    require()
    from bakemesh.inference.blocking import Inference

    args = call.args
    options = sampling_options(args)
    turns: list[dict[str, str]] = [{"role": "system", "content": args.system}] if args.system else []
    with Inference(**connection(call.settings)) as inference:
        if args.text:
            return _turn(call, inference, turns, " ".join(args.text), options)
        person = sys.stdin.isatty() and not call.screen.machine
        while (line := _line(call, person)) is not None:
            if line and (code := _turn(call, inference, turns, line, options, person=person)) != Exit.DONE:
                return code
    return Exit.DONE


def _line(call: Call, person: bool) -> str | None:
    """The next turn; None at the end."""
    if person:
        print("> ", end="", file=call.screen.out, flush=True)
    line = sys.stdin.readline()
    if not line:
        if person:
            call.screen.say("")
        return None
    return line.rstrip("\r\n")


def _turn(
    call: Call,
    inference: Inference,
    turns: list[dict[str, str]],
    said: str,
    options: dict[str, Any],
    *,
    person: bool = False,
) -> int:
    """One turn and its answer, kept in `turns`. A person who interrupts an answer may go on."""
    turns.append({"role": "user", "content": said})
    given: list[str] = []
    try:
        answer = _answer(call, inference, turns, options, given)
    except KeyboardInterrupt:
        call.screen.say("")
        if not person:
            raise Stopped(Exit.CANCELLED, "cancelled") from None
        turns.append({"role": "assistant", "content": "".join(given)})
        return Exit.DONE
    turns.append({"role": "assistant", "content": answer.text})
    return Exit.DONE


def _answer(
    call: Call, inference: Inference, turns: list[dict[str, str]], options: dict[str, Any], given: list[str]
) -> Text:
    from bakemesh.inference import Token

    with inference.chat_stream(turns, call.args.model, **options) as parts:
        for part in parts:
            if not isinstance(part, Token):
                speaking.end(call.screen, "turn", part)
                return part
            given.append(part.text)
            speaking.token(call.screen, part)
    raise AssertionError("a stream ends with its Text")
