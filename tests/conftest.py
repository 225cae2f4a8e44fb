"""What holds for every test: hypothesis judges what a test finds, not how fast the machine is today."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("bakemesh", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("bakemesh")
