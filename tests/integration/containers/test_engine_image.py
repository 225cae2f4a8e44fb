"""The image with the engine: what doctor says in it, and what a worker in it computes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from support import bert, models
from support.containers import ENGINE, engine_image, need_docker, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
BARE = ("docker", "run", "--rm", "-i", "--network=none", "--read-only", "--tmpfs=/tmp", "--cap-drop=ALL")
IDS = models.words("the cat sleeps")
POOL = """
import asyncio, hashlib, json, os, sys
from pathlib import Path
from bakemesh.workerpool import Artifact, Pool, Settings, Share

async def main(ids):
    path = Path("/models/mean.gguf")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    async with Pool(Settings(runtime_dir=Path("/tmp/run"), handshake_s=60, start_s=90)) as pool:
        model = await pool.load(Artifact(path=path, digest=digest), {})
        found = await pool.embed(model.key, Share([len(ids) // 4], ids))
        engine = pool.health().lanes[0].engine
    print(json.dumps({"uid": os.getuid(), "engine": engine, "vector": found.data.cast("f").tolist()}))

asyncio.run(main(bytes.fromhex(sys.argv[1])))
"""


@pytest.fixture(scope="module", autouse=True)
def image() -> None:
    need_docker()
    engine_image()


def cpu_flags() -> set[str]:
    """Of this machine."""
    found = re.search(r"^flags\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return set(found[1].split()) if found else set()


def test_doctor_names_the_variant_that_was_chosen_for_this_machine() -> None:
    said = run("sh", "-c", f"{' '.join(BARE)} {ENGINE} doctor --json || true")
    matters = {each["matter"]: each for each in json.loads(said)["findings"]}
    engine = matters["engine"]
    found = re.search(r"variant (\w+): (.*)", engine["found"])
    assert found is not None, engine
    assert found[1] not in ("built-in", "unknown"), "it has all of them, and one was chosen"
    assert ("AVX2" in found[2].split()) is ("avx2" in cpu_flags())
    assert ("AVX512" in found[2].split()) is ("avx512f" in cpu_flags())
    assert engine["state"] == ("ok" if "avx2" in cpu_flags() else "warning")


def test_a_worker_in_it_computes_vectors_without_rights_or_network(tmp_path: Path) -> None:
    models.bert(tmp_path / "mean.gguf")
    tmp_path.chmod(0o755)
    (tmp_path / "mean.gguf").chmod(0o644)
    ids = np.asarray(IDS, "<i4").tobytes().hex()
    said = run(
        *BARE, "-v", f"{tmp_path}:/models:ro", "--entrypoint=python3", ENGINE, "-I", "-c", POOL, ids
    )  # fmt: skip
    got = json.loads(said)
    assert got["uid"] == 10001
    assert got["engine"].startswith("llama ")
    wanted = bert.pooled(models.bert_weights(), IDS, "mean")
    assert np.dot(got["vector"], wanted / np.linalg.norm(wanted)) > 0.9999


def test_nothing_that_built_it_is_in_it() -> None:
    script = "for each in c++ cc cmake pip; do command -v $each; done; ls /src /opt/build 2>/dev/null; true"
    assert run(*BARE, "--entrypoint=sh", ENGINE, "-c", script) == ""
