"""examples/hello is a recipe as it stands, wherever the repository lies."""

from pathlib import Path

from bakemesh.protocol.builder.spec import load_recipe

HELLO = Path(__file__).parents[3] / "examples" / "hello"


def test_it_loads_with_its_one_parameter_and_names_no_machine():
    xml = (HELLO / "recipe.xml").read_text(encoding="utf-8")
    recipe = load_recipe(xml, params={"examples"}, supported=frozenset({"cli", "code"}))
    assert recipe.name == "hello"
    assert [step.name for step in recipe.steps] == ["list", "count", "favourites", "read-aloud", "done"]
    assert str(HELLO.parent) not in xml


def test_the_text_it_reads_ships_with_it():
    assert len((HELLO / "words.txt").read_text(encoding="utf-8").split()) > 300
