"""Chat templates: what models write, and what somebody might write to do harm."""

from __future__ import annotations

import threading

import pytest

from bakemesh.synapse.models.bounds import MOST_TEXT
from bakemesh.synapse.models.errors import TextRefused
from bakemesh.synapse.models.templates import LONGEST_TEMPLATE, ChatTemplate

CHAT = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": " Hi "}]


def rendered(source: str, **texts: str) -> str:
    return ChatTemplate(source, texts).render(CHAT)


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        (
            "{% for m in messages %}{{ m.role }}: {{ m['content'] | trim }}\n{% endfor %}",
            "user: Hello\nassistant: Hi\n",
        ),
        ("{% if add_generation_prompt %}{{ bos_token + 'x' }}{% endif %}", "<s>x"),
        ("{{ messages | length }}{{ tools is defined }}{{ messages[0].content.upper() }}", "2FalseHELLO"),
        (
            "{% set ns = namespace(n=0) %}{% for m in messages %}"
            "{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
            "2",
        ),
        (
            "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}"
            "{{ m.content ~ 1 }}{% endfor %}",
            " Hi 1",
        ),
        ("{{ messages[0] | tojson }}", '{"role": "user", "content": "Hello"}'),
        ("{% macro say(x) %}<{{ x }}>{% endmacro %}{{ say('<&>') }}", "<<&>>"),
        ("{% generation %}{{ 'a' }}{% endgeneration %}", "a"),
        ("{{ '<{}|{1}|{x}>'.format(bos_token, 2, x=3) }}", "<<s>|2|3>"),
        ("{{ strftime_now('%Y') | length }}", "4"),
        ("{{ messages[::-1][0].content.strip().split('H')[-1] }}", "i"),
        ("{{ 'a,b'.replace(',', ';') }}{{ ['x', 'y'] | join('-') }}{{ '-'.join(['p', 'q']) }}", "a;bx-yp-q"),
        ("  {%- if true %}\n  a\n  {%- endif %}\n", "  a"),
    ],
)  # fmt: skip
def test_what_templates_do(source: str, wanted: str) -> None:
    assert rendered(source, bos_token="<s>") == wanted


def test_a_template_may_refuse_a_chat_in_its_own_words() -> None:
    with pytest.raises(TextRefused, match="does not take this chat: roles must alternate") as caught:
        rendered("{{ raise_exception('roles must alternate') }}")
    assert caught.value.code == "bad_request"


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__class__ }}",
        "{{ messages[0].__init__.__globals__ }}",
        "{{ self._TemplateReference__context }}",
        "{{ (messages|attr('__class__')).x }}",
        "{{ cycler.__init__.__globals__.os }}",
        "{{ lipsum.__globals__ }}",
        "{{ raise_exception.__globals__ }}",
        "{{ '{0.__class__}'.format(messages) }}",
        "{{ '{x.y}'.format(x=1) }}",
        "{{ '{x[0]}'.format(x='ab') }}",
        "{{ '{x!r}'.format(x='ab') }}",
        "{{ '{}'.format() }}",
        "{{ '{'.format() }}",
        "{{ '%s' % messages }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(x=1) }}",
        "{{ 'a'.encode() }}",
        "{{ messages }}",
        "{% include 'x' %}",
        "{% import 'x' as y %}",
        "{{ 1 / 0 }}",
        "{{ undefined_name.x }}",
        "{{ messages[0].content | int + 'x' }}",
        "{{ strftime_now('%999999999d') }}",
        "{{ messages | tojson(indent=99999) }}",
    ],
)
def test_nothing_of_python_is_reached_and_mistakes_are_typed(source: str) -> None:
    try:
        said = rendered(source)
    except TextRefused:
        return
    assert said == ""  # as of a name that nobody defined


_GROWS = "{% set ns = namespace(s='xxxxxxxx', l=[1], n=3) %}{% for i in range(64) %}{% set "


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ 'x' * 999999999 }}",
        "{{ 999999999 * 'x' }}",
        "{{ [0] * 999999999 }}",
        "{{ 9 ** 64 ** 64 }}",
        "{{ range(999999999) | list }}",
        _GROWS + "ns.s = ns.s ~ ns.s %}{% endfor %}",
        _GROWS + "ns.s = ns.s + ns.s %}{% endfor %}",
        _GROWS + "ns.s = ns.s.replace('x', ns.s) %}{% endfor %}",
        _GROWS + "ns.s = ns.s | replace('x', ns.s) %}{% endfor %}",
        _GROWS + "ns.s = ns.s.join([ns.s, ns.s]) %}{% endfor %}",
        _GROWS + "ns.s = [ns.s, ns.s] | join(ns.s) %}{% endfor %}",
        _GROWS + "ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l | tojson }}",
        _GROWS + "ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l | string }}",
        _GROWS + "ns.n = ns.n * ns.n %}{% endfor %}{{ ns.n }}",
        "{{ 'x'.center(999999999) }}",
        "{{ 'x' | center(999999999) }}",
        "{{ '{:999999999}'.format(1) }}",
        "{{ 'x' | indent(999999999) | length * 'x' * 99999999 }}",
        "{% for i in range(9999) %}{{ '" + "x" * 20000 + "' }}{% endfor %}",
    ],
)  # fmt: skip
def test_what_would_go_on_for_ever_or_fill_the_memory_ends(source: str) -> None:
    with pytest.raises(TextRefused):
        rendered(source)


def test_a_text_of_many_pieces_is_bounded_too() -> None:
    template = ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}")
    piece = {"role": "user", "content": "x" * (MOST_TEXT // 4)}
    assert len(template.render([piece] * 4)) == MOST_TEXT
    with pytest.raises(TextRefused, match="more than"):
        template.render([piece] * 5)


@pytest.mark.parametrize(
    "source", ["{% for %}", "{{ ", "{% unknown %}", "x" * (LONGEST_TEMPLATE + 1), "{{ " + "(" * 5000]
)
def test_what_is_no_template_is_no_capability(source: str) -> None:
    with pytest.raises(TextRefused) as caught:
        ChatTemplate(source)
    assert caught.value.code == "capability_absent"


@pytest.mark.parametrize(
    "turn", [{}, {"role": "user"}, {"role": 5, "content": "x"}, {"role": "user", "content": 5}]
)
def test_a_turn_is_a_role_and_a_content(turn: dict[str, object]) -> None:
    with pytest.raises(TextRefused, match="turn 2 of the chat"):
        ChatTemplate("x").render([*CHAT, turn])


def test_the_budget_is_of_one_rendering_and_threads_do_not_share_it() -> None:
    template = ChatTemplate("{% for a in range(60) %}{% for b in range(1000) %}{% endfor %}{% endfor %}done")
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(template.render(CHAT))) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == ["done"] * 4
