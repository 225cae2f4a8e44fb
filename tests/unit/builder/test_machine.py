"""What the machine tells, out of text; a container's limits count where they are tighter."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.builder.machine import (
    Cpu,
    Machine,
    Memory,
    cgroup_of,
    contained,
    cores_of,
    cpu_of,
    field_of,
    hottest,
    limit_of,
    memory_of,
    share,
)

STAT = "cpu  100 5 45 700 50 0 10 0 30 0\ncpu0 1 1 1 1\nintr 5\n"
MEMINFO = "MemTotal:       2000 kB\nMemFree:         100 kB\nMemAvailable:   1500 kB\n"


def test_busy_is_all_but_idle_and_waiting_and_guests_count_once() -> None:
    assert cpu_of(STAT) == Cpu(160, 910)


def test_a_share_is_between_two_looks() -> None:
    assert share(Cpu(10, 100), Cpu(35, 200)) == 0.25
    assert share(None, Cpu(1, 2)) is None
    assert share(Cpu(1, 2), Cpu(1, 2)) is None, "no time has passed"
    assert share(Cpu(9, 10), Cpu(1, 20)) is None, "a counter was reset"


def test_memory_in_use_is_what_is_not_available() -> None:
    assert memory_of(MEMINFO) == Memory(500 * 1024, 2000 * 1024)
    assert memory_of("MemTotal: 5 kB\n") is None


def test_limits_and_fields() -> None:
    assert (limit_of("1048576\n"), limit_of("max\n"), limit_of(None), limit_of(str(2**63 - 1))) == (
        1048576, None, None, None,
    )  # fmt: skip
    assert (cores_of("150000 100000\n"), cores_of("max 100000"), cores_of(""), cores_of("1 0")) == (
        1.5, None, None, None,
    )  # fmt: skip
    assert field_of("usage_usec 12\nuser_usec 7\n", "user_usec") == 7
    assert field_of("usage_usec 12\n", "nothing") is None
    assert cgroup_of("12:cpu:/old\n0::/a/b\n") == "/a/b"
    assert cgroup_of("12:cpu:/old\n") is None


def test_the_container_counts_where_it_is_tighter() -> None:
    machine = Memory(600, 1000)
    assert contained(machine, None, None, 0) == machine
    assert contained(machine, 2000, 5, 0) == machine
    assert contained(machine, 400, 300, 100) == Memory(200, 400)
    assert contained(None, 400, 300, 500) == Memory(0, 400)


def test_a_sensor_that_is_broken_is_passed_over() -> None:
    assert hottest(["41000\n", "55500", "999999999", "-273000", "rubbish", None]) == 55.5
    assert hottest([]) is None


@given(st.text(max_size=200))
def test_rubbish_is_none_or_a_number_and_never_an_error(text: str) -> None:
    for read in (cpu_of, memory_of, cgroup_of, limit_of, cores_of):
        read(text)
    field_of(text, "usage_usec")
    hottest([text])


def test_this_machine_as_psutil_sees_it(tmp_path: Path) -> None:
    sample = Machine(tmp_path, cgroups=tmp_path / "none").sample(1.0)
    memory, disk = psutil.virtual_memory(), psutil.disk_usage(str(tmp_path))
    assert sample.memory is not None
    assert sample.memory.total == memory.total
    assert abs(sample.memory.used - (memory.total - memory.available)) < memory.total * 0.2
    assert sample.disk is not None
    assert sample.disk.total == pytest.approx(disk.total, rel=0.1)
    assert sample.load is not None
    assert sample.load >= 0


def test_a_container_by_its_files(tmp_path: Path) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    inner = groups / "outer/inner"
    inner.mkdir(parents=True)
    (proc / "self").mkdir(parents=True)
    (proc / "self/cgroup").write_text("0::/outer/inner\n")
    (proc / "stat").write_text(STAT)
    (proc / "meminfo").write_text("MemTotal: 4000000 kB\nMemAvailable: 3000000 kB\n")
    for group in (groups, inner, inner.parent):
        (group / "cgroup.controllers").write_text("cpu memory")
    (inner.parent / "memory.max").write_text("1000000\n")
    (inner.parent / "memory.current").write_text("700000\n")
    (inner.parent / "memory.stat").write_text("anon 1\ninactive_file 200000\n")
    (inner / "memory.max").write_text("max\n")
    (inner / "cpu.max").write_text("50000 100000\n")
    (inner / "cpu.stat").write_text("usage_usec 1000000\n")
    machine = Machine(tmp_path, proc=proc, sys=tmp_path, cgroups=groups)
    machine.sample(10.0)
    (inner / "cpu.stat").write_text("usage_usec 2000000\n")
    sample = machine.sample(14.0)
    assert sample.cpu == pytest.approx(0.5), "a second of CPU in four, where it may use two"
    assert sample.memory == Memory(500000, 1000000)
