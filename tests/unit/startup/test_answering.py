"""The answer to a PsySpec that does not decode."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from bakemesh.bus.settings import BusSettings
from bakemesh.protocol.admit import Cause, Refusal
from bakemesh.startup.answering import Answering
from bakemesh.startup.settings import StartupSettings


def test_a_long_reason_is_cut_to_the_bytes_that_a_summary_may_have(tmp_path: Path) -> None:
    settings = StartupSettings(
        bus=BusSettings(servers=("nats://127.0.0.1:4222",)), node="alpha", node_id="alpha", state=tmp_path
    )
    answering = Answering(cast(Any, None), settings, cast(Any, None))
    result = answering.refused(Refusal(next(iter(Cause)), "ü" * 600, "ops"))
    assert not result.accepted
    assert result.summary.startswith("ü" * 200)
    assert len(result.summary.encode()) <= 512
