"""Models and Health: what is here and how it is, from what is known already. No worker is asked."""

from __future__ import annotations

from bakemesh.protocol.inference.answers import HealthStamp, ModelList
from bakemesh.synapse import standing
from bakemesh.synapse.answering.parts import Parts
from bakemesh.synapse.answering.request import Request


def models(at: Parts, request: Request) -> None:
    """Answers Models."""
    views = at.lanes.views()
    entries = [
        standing.model_entry(each.alias, each.model.manifest, each.key, views) for each in at.shelf.all()
    ]
    request.end(ModelList(request=request.id, models=entries))


def health(at: Parts, request: Request) -> None:
    """Answers Health."""
    views, known = at.lanes.views(), at.shelf.all()
    refused = any(standing.quarantined(each.key, views) for each in known)
    state, problem = standing.state_of(views, draining=at.desk.draining, refused=refused)
    request.end(
        HealthStamp(
            request=request.id,
            state=state,
            queued=at.core.status().queued,
            bytesinflight=at.desk.bytes_inflight - request.size,
            lanes=[standing.lane_entry(view) for view in views],
            models=[standing.model_entry(each.alias, each.model.manifest, each.key, views) for each in known],
            problem=problem,
        )
    )
