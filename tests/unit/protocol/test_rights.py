"""Rights, stated as what each role can and cannot do: subjects are matched as the server matches them."""

from __future__ import annotations

import pytest

from bakemesh.protocol.errors import NameRefused
from bakemesh.protocol.rights import Grant, Permissions, authorization_block, inbox_prefix, permissions
from bakemesh.protocol.subjects import Role

NKEY = "UBUO2HA7C74V2NGWFBO3JFHMIP5CCUIY65N4FV563QMENHO4ZSZJJISV"
OTHER = "UBTMVL5Q3ZR3L3Q7XVYH75VBUTA5XWMK6Q3WLZ255ZCUWMYINQTW73F3"
READ = "$JS.API.CONSUMER.CREATE.m-data-c1.f00d.m.c1.{}.k.Psyclone.Builder.Bake.Data"

BUILDER = permissions(Role.BUILDER, "builder-b1", mesh="m", node_id="b1")
SUPERVISOR = permissions(Role.SUPERVISOR, "nightly", mesh="m")
OPERATOR = permissions(Role.OPERATOR, "ops", mesh="m")
DASHBOARD = permissions(Role.DASHBOARD, "wall", mesh="m")
GATEWAY = permissions(Role.GATEWAY, "axon", mesh="m")


def matches(pattern: str, subject: str) -> bool:
    """Whether `pattern` covers `subject`, which may itself hold wildcards (a subscription, a filter)."""
    wanted, given = pattern.split("."), subject.split(".")
    for place, part in enumerate(wanted):
        if part == ">":
            return len(given) > place
        if (
            place >= len(given)
            or (part != "*" and part != given[place])
            or (part == "*" and given[place] == ">")
        ):
            return False
    return len(wanted) == len(given)


def may_publish(rights: Permissions, subject: str) -> bool:
    allowed = any(matches(pattern, subject) for pattern in rights.publish)
    return allowed and not any(matches(pattern, subject) for pattern in rights.deny_publish)


def may_subscribe(rights: Permissions, subject: str) -> bool:
    return any(matches(pattern, subject) for pattern in rights.subscribe)


@pytest.mark.parametrize(
    "subject",
    [
        "m.b1.nightly.k.Psyclone.Builder.Bake.Status",
        "m.b1.nightly.k.Psyclone.Builder.Bake.Data",
        "m.b1.builder-b1.-.Psyclone.SystemStatus",
        "m.c1.builder-b1.k.Psyclone.Builder.Recipe",
        "_INBOX.nightly.x",
        "$KV.m-nodes.b1",
        "$JS.hub.API.$KV.m-nodes.b1.claim",
        "$KV.m-nodes.lock.sources",
        "$JS.API.STREAM.CREATE.m-data-b1",
        "$JS.API.STREAM.PURGE.m-status-b1",
        "$JS.hub.API.STREAM.UPDATE.m-status",
        "$JS.API.CONSUMER.CREATE.m-inbox.b1.m.b1.*.*.Psyclone.Builder.>",
        "$JS.API.CONSUMER.MSG.NEXT.m-inbox.b1",
        "$JS.ACK.m-inbox.b1.1.2.3.4.0",
        "$JS.ACK.hub.acc.m-inbox.b1.1.2.3.4.0",
        READ.format("builder-b1"),
    ],
)
def test_a_builder_may(subject: str) -> None:
    assert may_publish(BUILDER, subject)


@pytest.mark.parametrize(
    "subject",
    [
        "m.c1.nightly.k.Psyclone.Builder.Bake.Status",
        "m.b1.nightly.k.Psyclone.Builder.Recipe",
        "m.b1.nightly.k.Psyclone.Builder.BakeControl.Cancel",
        "m.c1.builder-c1.-.Psyclone.SystemStatus",
        "other.b1.nightly.k.Psyclone.Builder.Bake.Status",
        "$KV.m-nodes.c1",
        "$KV.m-nodes.c1.claim",
        "$KV.m-ids.nightly",
        "$JS.API.STREAM.DELETE.m-status-b1",
        "$JS.API.STREAM.PURGE.m-data-c1",
        "$JS.API.STREAM.PURGE.m-inbox",
        "$JS.API.CONSUMER.CREATE.m-inbox.c1.m.c1.*.*.Psyclone.Builder.>",
        "$JS.API.CONSUMER.DURABLE.CREATE.m-inbox.b1",
        "$JS.API.CONSUMER.NAMES.m-status",
        READ.format("nightly"),
        READ.format("*"),
    ],
)
def test_a_builder_may_not(subject: str) -> None:
    assert not may_publish(BUILDER, subject)


@pytest.mark.parametrize(
    "subject",
    [
        "m.b1.nightly.k.Psyclone.Builder.Recipe",
        "m.b1.nightly.k.Psyclone.Builder.BakeData",
        "m.b1.nightly.k.Psyclone.Builder.BakeControl.Pause",
        "$KV.m-ids.nightly",
        "$JS.hub.API.$KV.m-ids.nightly",
        "$JS.API.STREAM.MSG.GET.KV_m-ids",
        "$JS.API.STREAM.MSG.GET.KV_m-nodes",
        "$JS.API.STREAM.INFO.m-data-b1",
        "$JS.API.CONSUMER.MSG.NEXT.m-data-b1.f00d",
        "$JS.hub.API.CONSUMER.CREATE.m-status.f00d.m.b1.nightly.k.Psyclone.Builder.Bake.*",
        "$SRV.PING",
        READ.format("nightly"),
    ],
)
def test_a_supervisor_may(subject: str) -> None:
    assert may_publish(SUPERVISOR, subject)


@pytest.mark.parametrize(
    "subject",
    [
        "m.b1.other.k.Psyclone.Builder.Recipe",
        "m.b1.other.k.Psyclone.Builder.BakeControl.Cancel",
        "m.b1.nightly.k.Psyclone.Builder.Bake.Status",
        "m.b1.nightly.k.Psyclone.Builder.Bake.Data",
        "m.b1.builder-b1.-.Psyclone.SystemStatus",
        "_INBOX.other.x",
        "$KV.m-ids.other",
        "$KV.m-nodes.b1",
        "$JS.API.DIRECT.GET.KV_m-ids.$KV.m-ids.nightly",
        "$JS.API.STREAM.MSG.GET.m-data-b1",
        "$JS.API.STREAM.PURGE.m-status",
        "$JS.API.CONSUMER.CREATE.m-data-b1",
        "$JS.API.CONSUMER.CREATE.m-data-b1.f00d",
        "$JS.API.CONSUMER.DURABLE.CREATE.m-data-b1.f00d",
        "$JS.API.CONSUMER.NAMES.m-status",
        "$JS.API.CONSUMER.INFO.m-status.f00d",
        "$JS.API.CONSUMER.MSG.NEXT.m-inbox.b1",
        "$JS.hub.API.CONSUMER.MSG.NEXT.m-inbox.b1",
        READ.format("other"),
        READ.format("*"),
    ],
)
def test_a_supervisor_may_not(subject: str) -> None:
    assert not may_publish(SUPERVISOR, subject)


def test_on_a_leaf_the_nodes_own_inbox_is_closed_too() -> None:
    rights = permissions(Role.SUPERVISOR, "nightly", mesh="m", node_id="b1")
    assert not may_publish(rights, "$JS.API.CONSUMER.MSG.NEXT.m-inbox-b1.b1")
    assert may_publish(rights, "$JS.API.CONSUMER.MSG.NEXT.m-data-b1.f00d")


def test_what_a_dashboard_may_publish_is_reading_the_hubs_status() -> None:
    assert {part.split(".m-status")[0] for part in DASHBOARD.publish} == {
        f"{api}.{verb}"
        for api in ("$JS.API", "$JS.hub.API")
        for verb in ("STREAM.INFO", "CONSUMER.CREATE", "CONSUMER.MSG.NEXT")
    }


@pytest.mark.parametrize("subject", ["$JS.API.CONSUMER.NAMES.m-status", "$JS.API.CONSUMER.INFO.m-data-b1.x"])
def test_names_of_consumers_are_operators_alone(subject: str) -> None:
    assert may_publish(OPERATOR, subject)
    assert not any(may_publish(rights, subject) for rights in (SUPERVISOR, DASHBOARD, BUILDER))


def test_an_operator_reads_everybodys_bakes_and_steers_under_its_own_name() -> None:
    assert may_publish(OPERATOR, READ.format("nightly"))
    assert may_publish(OPERATOR, "m.b1.ops.k.Psyclone.Builder.BakeControl.Cancel")
    assert not may_publish(OPERATOR, "m.b1.nightly.k.Psyclone.Builder.BakeControl.Cancel")


@pytest.mark.parametrize("outcome", ["Status", "Success", "Failed", "Paused", "Cancelled", "Restarted"])
def test_who_sees_status_live(outcome: str) -> None:
    own = f"m.*.nightly.*.Psyclone.Builder.Bake.{outcome}"
    everyones = f"m.*.*.*.Psyclone.Builder.Bake.{outcome}"
    assert may_subscribe(SUPERVISOR, own)
    assert not may_subscribe(SUPERVISOR, everyones)
    assert may_subscribe(OPERATOR, everyones)
    assert may_subscribe(DASHBOARD, everyones)


@pytest.mark.parametrize("rights", [SUPERVISOR, OPERATOR, DASHBOARD, BUILDER])
def test_nobody_subscribes_data_recipes_or_anothers_inbox(rights: Permissions) -> None:
    for subject in (
        "m.b1.nightly.k.Psyclone.Builder.Bake.Data",
        "m.b1.nightly.k.Psyclone.Builder.Recipe",
        "_INBOX.other.>",
        "_INBOX.>",
        "m.>",
        ">",
    ):
        assert not may_subscribe(rights, subject), subject


@pytest.mark.parametrize(
    ("role", "name", "rights"),
    [
        (Role.SUPERVISOR, "nightly", SUPERVISOR),
        (Role.BUILDER, "builder-b1", BUILDER),
        (Role.DASHBOARD, "wall", DASHBOARD),
    ],
)
def test_everybody_has_an_inbox(role: Role, name: str, rights: Permissions) -> None:
    assert may_subscribe(rights, f"{inbox_prefix(name)}.x"), role


def test_only_a_builder_takes_controls_and_those_of_its_node() -> None:
    assert may_subscribe(BUILDER, "m.b1.*.*.Psyclone.Builder.BakeControl.*")
    assert not may_subscribe(BUILDER, "m.c1.*.*.Psyclone.Builder.BakeControl.*")
    assert not may_subscribe(SUPERVISOR, "m.b1.*.*.Psyclone.Builder.BakeControl.*")


@pytest.mark.parametrize(
    ("role", "name", "node_id"),
    [
        (Role.SUPERVISOR, "builder-b1", None),
        (Role.SUPERVISOR, "builder-b1", "b1"),
        (Role.OPERATOR, "startup-b1", "b1"),
        (Role.SUPERVISOR, "startup-b1", None),
        (Role.SUPERVISOR, "startup-b1", "c1"),
        (Role.BUILDER, "builder-b1", "c1"),
        (Role.BUILDER, "builder-b1", None),
        (Role.BUILDER, "nightly", "b1"),
        (Role.SUPERVISOR, "night.ly", None),
        (Role.SUPERVISOR, ">", None),
        (Role.DASHBOARD, "*", None),
    ],
)
def test_names_that_belong_to_others_are_refused(role: Role, name: str, node_id: str | None) -> None:
    with pytest.raises(NameRefused):
        permissions(role, name, mesh="m", node_id=node_id)


def test_a_startup_supervisor_on_its_node() -> None:
    rights = permissions(Role.SUPERVISOR, "startup-b1", mesh="m", node_id="b1")
    assert may_publish(rights, "m.b1.startup-b1.k.Psyclone.Builder.Recipe")


def test_the_block_names_every_identity() -> None:
    text = authorization_block(
        [Grant(Role.BUILDER, "builder-b1", NKEY, "b1"), Grant(Role.DASHBOARD, "wall", OTHER)], mesh="m"
    )
    assert text.startswith("authorization {")
    assert text.count("nkey:") == 2
    assert f"nkey: {NKEY}" in text
    assert '"m.b1.*.*.Psyclone.Builder.Bake.Data"' in text
    assert text.count("{") == text.count("}")


@pytest.mark.parametrize(
    "grants",
    [
        [Grant(Role.SUPERVISOR, "a", NKEY), Grant(Role.DASHBOARD, "a", OTHER)],
        [Grant(Role.SUPERVISOR, "a", NKEY), Grant(Role.SUPERVISOR, "b", NKEY)],
        [Grant(Role.SUPERVISOR, "a", "SUAB")],
        [Grant(Role.SUPERVISOR, "a", NKEY + '" }')],
    ],
)
def test_a_block_that_would_mix_identities_is_refused(grants: list[Grant]) -> None:
    with pytest.raises(NameRefused):
        authorization_block(grants, mesh="m")


@pytest.mark.parametrize("role", [Role.MODULE, Role.SUPERVISOR])
def test_a_component_with_listed_types_hears_its_health_subject_and_no_controls_of_itself(role: Role) -> None:
    rights = permissions(role, "pump", mesh="m", triggers=("Robot.*",))
    assert may_hear(rights, "m.b1.builder-b1.pump.Pump.Alive")
    assert may_hear(rights, "m.b1.builder-b1.pump.Psyclone.Component.Deliver")
    assert may_hear(rights, "m.b1.hand.-.Robot.Lamp")
    assert not may_hear(rights, "m.b1.builder-b1.other.Pump.Alive")
    assert not may_hear(rights, "m.b1.ops.pump.Psyclone.Builder.ComponentControl.Stop")
    assert not may_hear(rights, "m.b1.hand.-.Other.Lamp")


def may_hear(rights: Permissions, subject: str) -> bool:
    """Whether a message on the subject is delivered: a denial also cuts out of a wider subscription."""
    return may_subscribe(rights, subject) and not any(
        matches(pattern, subject) for pattern in rights.deny_subscribe
    )


@pytest.mark.parametrize("verb", ["Embed", "Rerank", "Generate", "Cancel", "Models", "Health"])
def test_a_gateway_asks_for_work_under_its_own_name(verb: str) -> None:
    for node in ("b1", "any"):
        assert may_publish(GATEWAY, f"m.{node}.axon.small.Psyclone.Synapse.{verb}")
        assert not may_publish(GATEWAY, f"m.{node}.other.small.Psyclone.Synapse.{verb}")


def test_a_gateway_is_a_service_and_a_component_and_hears_the_nodes_that_serve_models() -> None:
    assert may_hear(GATEWAY, "m.*.*.*.Psyclone.Synapse.Status")
    assert may_hear(GATEWAY, "$SRV.PING")
    assert may_hear(GATEWAY, "_INBOX.axon.x")
    assert may_hear(GATEWAY, "m.b1.builder-b1.axon.Psyclone.Component.Deliver")
    assert may_publish(GATEWAY, "m.b1.axon.k.Psyclone.Component.Report")
    assert GATEWAY.allow_responses


@pytest.mark.parametrize(
    "subject",
    [
        "m.b1.axon.small.Psyclone.Synapse.Ingest",
        "m.b1.axon.small.Psyclone.Synapse.Probe",
        "m.b1.axon.-.Psyclone.Synapse.Artifact",
        "m.b1.axon.-.Psyclone.Synapse.Status",
        "m.b1.axon.w0.Psyclone.Worker.Generate",
        "m.b1.axon.k.Psyclone.Builder.Recipe",
        "m.b1.axon.k.Psyclone.Builder.BakeControl.Cancel",
        "m.b1.axon.k.Psyclone.Builder.NodeControl.Down",
        "m.b1.axon.-.Robot.Lamp",
        "_INBOX.other.x",
        "$SRV.PING",
        "$JS.API.STREAM.INFO.m-status",
        "$JS.API.CONSUMER.MSG.NEXT.m-data-b1.f00d",
        "$JS.API.STREAM.MSG.GET.KV_m-nodes",
        "$KV.m-nodes.b1",
        "$KV.m-ids.axon",
    ],
)
def test_what_strangers_reach_through_a_gateway_is_work_and_nothing_else(subject: str) -> None:
    assert not may_publish(GATEWAY, subject)


@pytest.mark.parametrize(
    "subject",
    [
        "m.*.*.*.Psyclone.Synapse.Generate",
        "m.*.*.*.Psyclone.Worker.Status",
        "m.*.*.*.Psyclone.Builder.Bake.Status",
        "m.*.*.*.Psyclone.SystemStatus",
        "_INBOX.>",
        "m.>",
        ">",
    ],
)
def test_a_gateway_hears_nothing_that_others_are_asked_or_told(subject: str) -> None:
    assert not may_subscribe(GATEWAY, subject)
