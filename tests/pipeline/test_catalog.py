from __future__ import annotations

import ast

import pytest

from workbench.pipeline import catalog
from workbench.stages import Only

FIRST_FIVE = {"dapo_dynamic_sampling", "grpo", "mc_grpo", "mopps", "vade"}


def test_one_file_is_one_method() -> None:
    found = catalog.methods()
    assert set(found) >= FIRST_FIVE
    assert list(found) == sorted(found)
    assert all(slug == cls().name for slug, cls in found.items())


def test_methods_by_verb() -> None:
    assert "mopps" in catalog.find("select")
    assert "mopps" not in catalog.find("loss")
    assert "mc_grpo" in catalog.find("amend")
    with pytest.raises(ValueError, match="'dance' is not a verb; the verbs are select"):
        catalog.find("dance")


def test_made_by_slug_with_settings() -> None:
    assert catalog.make("vade", lambda_sample=0.8).lambda_sample == 0.8
    assert catalog.make("MC-GRPO").name == "mc_grpo"
    assert catalog.make("mopps", only=["select"]).verbs == ("select",)
    with pytest.raises(ValueError, match=r"no method 'gprs'; there are .*dapo_dynamic_sampling"):
        catalog.make("gprs")
    with pytest.raises(ValueError, match="its settings are target, strategy"):
        catalog.make("mopps", colour=3)


@pytest.mark.parametrize(
    "text", ["grpo + mopps(target=0.4)", "grpo, mopps(target=0.4)", "Pipeline(Grpo(), Mopps(target=0.4))"]
)
def test_read_from_text(text: str) -> None:
    methods = [catalog.read(part) for part in catalog.parts(text)]
    assert methods == [catalog.make("grpo"), catalog.make("mopps", target=0.4)]


def test_nothing_but_literals_is_read() -> None:
    for text in ("mopps(target=__import__('os'))", "mopps(target=f())", "mopps.select", "(lambda: 1)()"):
        with pytest.raises(ValueError, match=r"settings must be plain|is not a method"):
            catalog.read(ast.parse(text, mode="eval").body)
    with pytest.raises(ValueError, match="cannot read the pipeline"):
        catalog.parts("grpo +")


def test_only_keeps_some_verbs() -> None:
    only = catalog.read(catalog.parts("Only(uniform(), 'select')")[0])
    assert isinstance(only, Only)
    assert only.verbs == ("select",)
    with pytest.raises(ValueError, match="Grpo acts at estimate, loss"):
        Only(catalog.make("grpo"), "select")
