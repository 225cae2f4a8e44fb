"""Tensors that nobody should open, at a gateway: refused in every profile, before any handler."""

from __future__ import annotations

import pickle
from typing import Any, ClassVar

import pytest

from bakemesh.edge import Axon
from bakemesh.protocol.axon import Profile, Synapse, Tensor
from support.axon import gateway
from support.recorded import recorded

GOLDEN = recorded("golden_tensor")
HANDLED: list[Synapse] = []


class Array(Synapse):
    required_hash_fields: ClassVar = ("given", "rows")
    given: Tensor | None = None
    rows: list[Tensor] = []  # noqa: RUF012


async def handled(synapse: Array) -> Array:
    HANDLED.append(synapse)
    return synapse


@pytest.mark.parametrize("profile", Profile)
async def test_what_nobody_should_open_is_400_and_no_handler_sees_it(
    profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(*_: Any) -> None:
        raise AssertionError("a pickle was opened")

    monkeypatch.setattr(pickle, "loads", opened)
    monkeypatch.setattr(pickle, "load", opened)
    HANDLED.clear()
    async with gateway(Axon().attach(handled)) as at:
        for row in GOLDEN["refuse"]:
            bad = Tensor.model_construct(**row["tensor"])
            for asked in (Array.model_construct(given=bad), Array.model_construct(rows=[bad])):
                answer = await at.post(asked, profile=profile)
                assert answer.status == 400, row["name"]
        assert at.counted(verdict="bad_tensor") == 2 * len(GOLDEN["refuse"])
        assert HANDLED == []
        good = Tensor(**GOLDEN["cases"][0]["tensor"])
        assert (await at.post(Array(given=good), profile=profile)).status == 200
    assert len(HANDLED) == 1
