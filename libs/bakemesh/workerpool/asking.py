"""What a pool can be asked: each a function of token ids to a result, or one typed error (see `errors`).

Ids are i32 LE, one item after the other; special tokens are in them already, but for RERANK. Raised by all:
EngineCrashed, RequestPoisoned, ModelQuarantined, ModelUnknown, DeadlineExceeded, WorkerUnavailable, LaneBusy,
Cancelled, PoolClosed, CapabilityAbsent, BadRequest, InferenceFailed, OutOfMemory, and LoadFailed where the
worker had to load the model for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict
from typing import Any

from bakemesh.protocol.worker import headers as h
from bakemesh.protocol.worker.packets import Packet
from bakemesh.workerpool.call import Call
from bakemesh.workerpool.deadlines import Work
from bakemesh.workerpool.errors import BadRequest, WorkerPoolError
from bakemesh.workerpool.job import Job, Request, RunApart, digest_of
from bakemesh.workerpool.ledger import Ledger
from bakemesh.workerpool.models import Info, ModelKey, Sampling, Share, Text, Token, Vectors
from bakemesh.workerpool.placing import Wanted

EmbedResult = Vectors | WorkerPoolError


class Asking(ABC):
    """The requests; `Pool` is one that can be asked."""

    ledger: Ledger
    _loop: asyncio.AbstractEventLoop

    @abstractmethod
    def job(self, stage: str, key: ModelKey, call: Call, request: Any, result: Any, **more: Any) -> Job:
        """A job of this call."""

    @abstractmethod
    async def submit(self, job: Job) -> Any:
        """Runs a job."""

    async def embed(
        self,
        key: ModelKey,
        share: Share,
        *,
        pooling: str = "mean",
        normalize: bool = True,
        call: Call | None = None,
    ) -> Vectors:
        """The vectors of one caller's items."""
        _check(share)
        result: list[Vectors] = await self.submit(
            self._embed(key, [share], pooling, normalize, call or Call())
        )
        return result[0]

    async def embed_batch(
        self,
        key: ModelKey,
        shares: Sequence[Share],
        *,
        pooling: str = "mean",
        normalize: bool = True,
        call: Call | None = None,
    ) -> list[EmbedResult]:
        """Several callers' items in one EMBED_BATCH: of each caller its vectors or its error, in their order.

        A crash is one charge, and each caller is run again by itself; a caller that killed a worker before is
        run by itself from the start. Raises BadRequest for a share that contradicts itself.
        """
        call = call or Call()
        for share in shares:
            _check(share)
        apart = self._suspects(key, shares, pooling, normalize)
        together = [index for index in range(len(shares)) if index not in apart]
        found: dict[int, EmbedResult] = {}
        if len(together) == 1:
            apart, together = apart | set(together), []
        lone = asyncio.gather(
            *(self._lone(key, shares[index], pooling, normalize, call) for index in sorted(apart))
        )
        try:
            if together:
                job = self._embed(key, [shares[index] for index in together], pooling, normalize, call)
                try:
                    found.update(zip(together, await self.submit(job), strict=True))
                except RunApart as crash:
                    again = (
                        self._lone(key, shares[index], pooling, normalize, call, crash.lane)
                        for index in together
                    )
                    found.update(zip(together, await asyncio.gather(*again), strict=True))
                except WorkerPoolError as error:
                    found.update(dict.fromkeys(together, error))
            found.update(zip(sorted(apart), await lone, strict=True))
        finally:
            lone.cancel()
        return [found[index] for index in range(len(shares))]

    async def rerank(
        self,
        key: ModelKey,
        query_tokens: int,
        counts: Sequence[int],
        ids: bytes | memoryview,
        *,
        call: Call | None = None,
    ) -> memoryview:
        """A raw score (f32 LE) of each candidate. `ids`: the query's, then the candidates', no specials."""
        candidates = [{"n_tokens": count} for count in counts]

        def request(ref: str, req_id: str) -> tuple[h.Header, bytes | memoryview]:
            header = h.Rerank(
                req_id=req_id, model_ref=ref, query_n_tokens=query_tokens, candidates=candidates
            )
            return header, ids

        work = Work(query_tokens * len(counts) + sum(counts))
        digest = lambda: [digest_of(key, "rerank", (query_tokens, list(counts)), ids)]  # noqa: E731
        job = self.job("rerank", key, call or Call(), request, _data, **_measured(work), digests=digest)
        scores: memoryview = await self.submit(job)
        return scores

    async def generate(
        self,
        key: ModelKey,
        ids: bytes | memoryview,
        max_tokens: int,
        *,
        grammar: str | None = None,
        call: Call | None = None,
    ) -> Text:
        """Greedy generation."""

        def request(ref: str, req_id: str) -> tuple[h.Header, bytes | memoryview]:
            return h.Generate(req_id=req_id, model_ref=ref, max_tokens=max_tokens, grammar=grammar), ids

        job = self._generation(key, ids, max_tokens, ("greedy", grammar), request, call or Call())
        text: Text = await self.submit(job)
        return text

    async def generate_stream(
        self,
        key: ModelKey,
        ids: bytes | memoryview,
        max_tokens: int,
        sampling: Sampling | None = None,
        *,
        call: Call | None = None,
    ) -> AsyncIterator[Token | Text]:
        """Sampled generation, token by token, and its Text at last. Closing the iterator cancels it. After
        its first token it is not run again, whatever happens."""
        options = asdict(sampling or Sampling())
        came: asyncio.Queue[Token | None] = asyncio.Queue()

        def request(ref: str, req_id: str) -> tuple[h.Header, bytes | memoryview]:
            header = h.GenerateStream(req_id=req_id, model_ref=ref, max_tokens=max_tokens, **options)
            return header, ids

        job = self._generation(key, ids, max_tokens, sorted(options.items()), request, call or Call())
        job.needs = h.GenerateStream.TYPE
        job.part = lambda token: came.put_nowait(Token(token.index, token.text))
        task = asyncio.ensure_future(self.submit(job))
        task.add_done_callback(lambda _: came.put_nowait(None))
        try:
            while (token := await came.get()) is not None:
                yield token
            yield await task
        finally:
            if not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            elif not task.cancelled():
                task.exception()

    async def info(self, key: ModelKey, *, call: Call | None = None) -> Info:
        """What the model is."""
        request = lambda ref, req_id: (h.ModelInfo(req_id=req_id, model_ref=ref), None)  # noqa: E731
        job = self.job("info", key, call or Call(), request, lambda packet: packet.header)
        job.needs = h.ModelInfo.TYPE
        told: Info = await self.submit(job)
        return told

    # -- how jobs are made

    def _generation(
        self,
        key: ModelKey,
        ids: bytes | memoryview,
        max_tokens: int,
        options: Any,
        request: Request,
        call: Call,
    ) -> Job:
        def result(packet: Packet) -> Text:
            said = packet.header
            return Text(said.text, said.n_prompt, said.n_gen, said.finish_reason)

        return self.job(
            "generate",
            key,
            call,
            request,
            result,
            work=Work(len(ids) // 4, max(1, max_tokens)),
            done_work=lambda packet: Work(packet.header.n_prompt, packet.header.n_gen),
            digests=lambda: [digest_of(key, "generate", (max_tokens, options), ids)],
        )

    def _embed(
        self, key: ModelKey, shares: Sequence[Share], pooling: str, normalize: bool, call: Call
    ) -> Job:
        ids = shares[0].ids if len(shares) == 1 else b"".join(share.ids for share in shares)
        items = [
            {"id": name, "n_tokens": count}
            for number, share in enumerate(shares)
            for name, count in zip(_names(share, number, len(shares)), share.counts, strict=True)
        ]

        def request(ref: str, req_id: str) -> tuple[h.Header, bytes | memoryview]:
            header = h.EmbedBatch(
                req_id=req_id, model_ref=ref, pooling=pooling, normalize=normalize, items=items
            )
            return header, ids

        def result(packet: Packet) -> list[Vectors]:
            data, dims, out, row = packet.data or memoryview(b""), packet.header.dims, [], 0
            for share in shares:
                end = row + len(share.counts)
                out.append(Vectors(end - row, dims, data[4 * dims * row : 4 * dims * end]))
                row = end
            return out

        work = Work(sum([sum(share.counts) for share in shares]))
        digests = lambda: [_digest(key, share, pooling, normalize) for share in shares]  # noqa: E731
        job = self.job("embed", key, call, request, result, **_measured(work), digests=digests)
        job.callers = len(shares)
        return job

    async def _lone(
        self,
        key: ModelKey,
        share: Share,
        pooling: str,
        normalize: bool,
        call: Call,
        avoid: str | None = None,
    ) -> EmbedResult:
        try:
            job = self._embed(key, [share], pooling, normalize, call)
            job.wanted = Wanted(key, call.lane, avoid)
            if avoid is not None:
                job.attempt += 1
            vectors: list[Vectors] = await self.submit(job)
        except WorkerPoolError as error:
            return error
        return vectors[0]

    def _suspects(self, key: ModelKey, shares: Sequence[Share], pooling: str, normalize: bool) -> set[int]:
        strikes, now = self.ledger.strikes, self._loop.time()
        if not strikes:
            return set()
        return {
            index
            for index, share in enumerate(shares)
            if strikes.suspect(_digest(key, share, pooling, normalize), now)
        }


def _measured(work: Work) -> dict[str, Any]:
    done: Callable[[Packet], Work] = lambda packet: work  # noqa: E731
    return {"work": work, "done_work": done}


def _data(packet: Packet) -> memoryview:
    return packet.data if packet.data is not None else memoryview(b"")


def _names(share: Share, number: int, of: int) -> Sequence[str]:
    if share.names is not None:
        return share.names
    prefix = f"{number}." if of > 1 else ""
    return [f"{prefix}{index}" for index in range(len(share.counts))]


def _check(share: Share) -> None:
    """Raises BadRequest: what would put worker and host at odds is not sent."""
    if memoryview(share.ids).nbytes != 4 * sum(share.counts):
        raise BadRequest(
            f"{memoryview(share.ids).nbytes} bytes of ids for {sum(share.counts)} tokens; each is 4 bytes"
        )
    if share.names is not None and len(share.names) != len(share.counts):
        raise BadRequest(f"{len(share.names)} names for {len(share.counts)} items")


def _digest(key: ModelKey, share: Share, pooling: str, normalize: bool) -> str:
    return digest_of(key, "embed", (pooling, normalize, list(share.counts)), share.ids)
