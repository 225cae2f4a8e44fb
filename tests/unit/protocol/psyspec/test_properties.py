"""What holds for every PsySpec: components come back as they went, bring-ups load, garbage is refused."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bakemesh.protocol.builder.spec import Values, expand, load_recipe
from bakemesh.protocol.builder.spec.component import ComponentSpec, matches
from bakemesh.protocol.builder.spec.model import AttachStep, ModuleStep
from bakemesh.protocol.builder.spec.module import ComponentRefused, component_of
from bakemesh.protocol.psyspec import (
    PsySpecRefused,
    bringup,
    bundle,
    element_of,
    groups,
    load_psyspec,
)
from support.psyspecs import COMPONENTS, SYSTEMS, TEXT, as_psyspec

VALUES = Values(node="node", node_id="id", recipe_id="recipe")
# How fast examples are made is the machine's business.
SYSTEMATIC = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
SLOW = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])


def put_in(text: str) -> str:
    return expand(text, VALUES)


@SLOW
@given(COMPONENTS)
def test_a_component_reads_back_from_its_element_as_it_was(spec: ComponentSpec) -> None:
    back = component_of(element_of(spec), put_in)
    assert back == spec
    assert back.digest == spec.digest
    assert ComponentSpec.from_json(spec.to_json()) == spec
    (entry,) = load_psyspec(as_psyspec(replace(spec, triggers=()))).modules
    assert entry.spec == replace(spec, triggers=())


@SYSTEMATIC
@given(SYSTEMS, st.randoms())
def test_every_psyspec_is_brought_up_with_just_its_components(specs: list[ComponentSpec], random) -> None:
    """In the order of `depends`: what a module waits for was attached to before it is started."""
    for at in range(1, len(specs)):
        some = random.sample([spec.name for spec in specs[:at]], random.randint(0, at))
        specs[at] = replace(specs[at], depends=tuple(some))
    random.shuffle(specs)
    psyspec = load_psyspec(as_psyspec(*specs))
    (group,) = groups(psyspec, "alpha", "a1")
    recipe = load_recipe(bringup(group))
    attached: set[str] = set()
    found: dict[str, ComponentSpec] = {}
    for step in recipe.steps:
        if isinstance(step, AttachStep):
            attached.add(step.module)
            continue
        assert isinstance(step, ModuleStep)
        spec = component_of(step.xml, put_in)
        assert set(spec.depends) <= attached
        assert not step.wait
        assert step.retryable
        found[spec.name] = spec
    assert attached == set(found)
    stored = {post.type for spec in specs for post in spec.posts if post.durable}
    for spec in specs:
        triggers = tuple(
            replace(each, durable=tuple(sorted(type_ for type_ in stored if matches(each.type, type_))))
            for each in spec.triggers
        )
        assert found[spec.name] == replace(spec, triggers=triggers)


@SYSTEMATIC
@given(SYSTEMS)
def test_a_bundle_means_what_its_files_mean(specs: list[ComponentSpec]) -> None:
    text = as_psyspec(*specs)
    files = {
        "main.xml": '<psySpec name="demo"><include file="sub/inner.xml"/></psySpec>',
        "sub/inner.xml": text,
    }
    whole = bundle(files["main.xml"], file="main.xml", read=files.__getitem__)
    assert load_psyspec(whole).digest == load_psyspec(text).digest
    again = bundle(whole, file="main.xml", read=files.__getitem__)
    assert load_psyspec(again).digest == load_psyspec(text).digest


PIECES = st.sampled_from(
    [
        *("<psySpec name='a'>", "</psySpec>", "<module name='m'>", "<module name='n' depends='m'>"),
        *("</module>", "<crank command='a'/>", "<crank script='a.py'>", "</crank>", "x", "%a%", "%"),
        *("<variable name='a' value='%b%'/>", "<variable name='b' value='%a%%a%'/>", "<node name='b'/>"),
        *(
            "<include file='a'/>",
            "<cohort name='c' nodes='b'/>",
            "<?bakemesh-from 3 b?>",
            "<?bakemesh-from x?>",
        ),
        *("<trigger name='t' type='*'/>", "<post name='p' type='T' durable='yes'/>", "<!--", "-->", "&#0;"),
        *("<![CDATA[", "]]>", "<!DOCTYPE a>", "<supervisor name='s' node='b'>", "</supervisor>", "\ud800"),
        *("<crank script='a' source-of='m'/>", "<space/>", "<psySpec xmlns='u'>", "name='%a%'", "\x00"),
    ]
)


def read(path: str) -> str:
    if path == "a":
        return "<include><include file='b'/></include>"
    raise FileNotFoundError(2, "No such file", path)


@given(st.lists(PIECES, max_size=16).map("".join) | TEXT | st.text(max_size=30))
def test_garbage_is_refused_and_nothing_else(text: str) -> None:
    for attempt in (load_psyspec, lambda text: bundle(text, file="f", read=read)):
        try:
            attempt(text)
        except PsySpecRefused as error:
            if not error.problems:
                raise
    with suppress(ComponentRefused):
        component_of(text, put_in)


@SYSTEMATIC
@given(SYSTEMS, st.text(" \n\t", max_size=4))
def test_blanks_and_comments_are_not_in_the_digest(specs: list[ComponentSpec], blanks: str) -> None:
    text = as_psyspec(*specs)
    other = text.replace("<module", f"{blanks}<!-- {len(blanks)} --><module", 1)
    assert load_psyspec(other).digest == load_psyspec(text).digest


@SYSTEMATIC
@given(SYSTEMS, st.data())
def test_only_what_is_asked_for_is_brought_up(specs: list[ComponentSpec], data: st.DataObject) -> None:
    (group,) = groups(load_psyspec(as_psyspec(*specs)), "alpha", "a1")
    names = [entry.spec.name for entry in group.modules]
    wanted = data.draw(st.sets(st.sampled_from(names), min_size=1))
    steps = load_recipe(bringup(group, wanted)).steps
    assert {step.module for step in steps if isinstance(step, ModuleStep)} == wanted
