"""A generation as it is shown: token by token, then its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bakemesh.cli.screen import Screen

if TYPE_CHECKING:
    from bakemesh.inference import Text, Token


def token(screen: Screen, part: Token) -> None:
    """A piece of the text, at once."""
    if screen.machine:
        screen.event("token", index=part.index, text=part.text)
    else:
        print(part.text, end="", file=screen.out, flush=True)


def end(screen: Screen, event: str, text: Text, *, newline: bool = True) -> None:
    """The whole of it, as `event`; for people the line's end (`newline`), and whether it was cut off."""
    if screen.machine:
        screen.event(
            event,
            text=text.text,
            finishreason=text.finish_reason,
            nprompt=text.n_prompt,
            ngen=text.n_generated,
            node=text.node_id,
        )
        return
    if newline:
        screen.say("")
    if text.finish_reason == "length":
        screen.note(f"ended after {text.n_generated} tokens; --max-tokens allows more")
