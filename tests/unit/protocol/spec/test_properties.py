"""Whatever the text: a Recipe or a RecipeRefused, and a value never becomes more than one word."""

import shlex

from hypothesis import example, given, settings
from hypothesis import strategies as st

from bakemesh.protocol.builder.spec import RecipeRefused, Values, expand, load_recipe, root_name
from bakemesh.protocol.builder.spec.grammar import EVERYWHERE, RECIPE

TAGS = st.sampled_from(
    ["recipe", "RECIPE", "psyprobe", "x:y", "é", *{element.name for element in EVERYWHERE}]
)
NAMES = st.sampled_from(
    sorted(
        {
            "xmlns",
            "Name",
            "nope",
            *RECIPE.attributes,
            *(name for each in EVERYWHERE for name in each.attributes),
        }
    )
)
WORDS = (
    "yes no 1 0 -1 a b (.) (( python sh hold continue ' lanes A.* Integer ../x /x ls $$ ${ ${node} ${entry:a}"
)
TEXTS = st.sampled_from([*WORDS.split(), "${step:a.exitcode}", "${param:a}", "", " ", "ü\n"]) | st.text(
    max_size=9
)


def escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")


ATTRIBUTES = st.lists(st.tuples(NAMES, TEXTS), max_size=4, unique_by=lambda pair: pair[0])
OPENED = st.tuples(TAGS, ATTRIBUTES, TEXTS, st.integers(0, 2))


def tree(opened):
    """XML of elements that each close so many of those open before they begin."""
    parts, still_open = [], []
    for tag, attributes, text, closed in opened:
        parts.extend(f"</{still_open.pop()}>" for _ in range(min(closed, len(still_open))))
        given = "".join(f' {key}="{escaped(value)}"' for key, value in attributes)
        parts.append(f"<{tag}{given}>{escaped(text)}")
        still_open.append(tag)
    return "".join(parts) + "".join(f"</{tag}>" for tag in reversed(still_open))


def attempt(xml, **how):
    problems = ()
    try:
        load_recipe(xml, **how)
    except RecipeRefused as error:
        problems = error.problems
        if not problems:
            raise
    assert len(problems) <= 100
    assert all(problem.line >= 1 and problem.message for problem in problems)
    assert sum(len(repr(problem.entry()).encode()) for problem in problems) < 65536


@given(st.text())
@example("<recipe name='\ud800'/>")
def test_any_text_is_a_recipe_or_refused(xml):
    attempt(xml)
    root_name(xml)


@settings(max_examples=200, deadline=None)
@given(st.lists(OPENED, min_size=1, max_size=8), st.none() | st.frozensets(st.sampled_from(["cli", "code"])))
def test_any_tree_of_known_words_is_a_recipe_or_refused(opened, supported):
    attempt(f"<recipe>{tree(opened)}</recipe>", supported=supported, max_payload=1 << 20)


@given(st.binary(max_size=300), st.integers(0, 300))
def test_a_recipe_with_bytes_thrown_in_is_a_recipe_or_refused(noise, at):
    xml = (
        b'<recipe name="a"><cli name="b" command="ls"><env name="A" value="${node}"/></cli><recipe node="n">'
    )
    xml += b'<code language="sh"><![CDATA[x < y]]></code></recipe></recipe>'
    attempt((xml[:at] + noise + xml[at:]).decode("latin-1"))


# what a value may be: anything without NUL and lone surrogates, the hostile first
HOSTILE = st.one_of(
    st.sampled_from(["a b", "'; rm -rf /", '"', "${node}", "$$", "\\", "\n", "*", "", "${entry:other}"]),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=50),
)


@given(HOSTILE, HOSTILE)
def test_a_value_is_put_in_as_it_is_and_stays_one_word(entry, param):
    recipe = load_recipe(
        '<recipe><requestdata entry="E"/><cli command="run a${entry:E}b &quot;${param:P}&quot; c"/></recipe>'
    )
    values = Values("n", "i", "r", entries={"E": entry.encode()}, params={"P": param})
    assert [expand(word, values) for word in recipe.steps[1].argv] == ["run", f"a{entry}b", param, "c"]


@given(st.text())
def test_a_doubled_dollar_writes_any_text(text):
    assert expand(text.replace("$", "$$"), Values("n", "i", "r")) == text


@given(
    st.lists(st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "Zs"])), min_size=1, max_size=5)
)
def test_a_quoted_command_splits_into_the_words_that_were_quoted(words):
    words = ["run", *(word.replace("$", "") for word in words)]
    command = escaped(shlex.join(words))
    assert load_recipe(f'<recipe><cli command="{command}"/></recipe>').steps[0].argv == tuple(words)
