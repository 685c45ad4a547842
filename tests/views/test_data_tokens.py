"""One rollout token by token: what is read, what is missing and why, and what the browser is given."""

import json
import math

import numpy as np
import pytest
from grown import hand, record
from grown import read as opened

from workbench.types import Ragged
from workbench.views.data.groups import groups_of
from workbench.views.data.tokens import Band, band, coverage, siblings, token_text
from workbench.views.parts.tokens import columns, covered, sibling


def with_policy(rollouts):
    """Ratios 1, 1.5 and 0.5 for the first three tokens of every rollout, 1 after that."""
    values = rollouts.logp.values.copy()
    for i, factor in ((1, 1.5), (2, 0.5)):
        values[rollouts.logp.offsets[:-1] + i] += math.log(factor)
    return rollouts.with_(current=Ragged(values.astype(np.float32), rollouts.logp.offsets))


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory):
    store = tmp_path_factory.mktemp("tokens")
    record(store, made=hand, change=with_policy)
    return opened(store)


def test_tokens_are_read_with_all_that_is_known_of_them(by_hand):
    group = groups_of(by_hand, 1)[0]
    rows = siblings(by_hand, group)
    assert [(s.id, s.reward, s.fate) for s in rows] == [
        ("1:p0:1", 1.0, "trained"), ("1:p0:0", 0.25, "trained"), ("1:p0:2", None, "pruned"),
    ]  # fmt: skip
    said = token_text(by_hand, group, rows[0])
    assert said.words == (" the", " sum", "2", ",", " so")
    assert said.ids == (0, 1, 4, 5, 6)
    assert said.n == 5
    assert said.tracks["logp"] == [-0.5] * 5
    assert said.tracks["entropy"] == [0.1, 0.2, 1.5, 0.7, 0.1]
    assert said.tracks["ratio"] == [1.0, 1.5, 0.5, 1.0, 1.0]
    assert said.tracks["advantage"] == [1.0] * 5
    assert said.tracks["clipped"] == [0, 1, 0, 0, 0]
    assert token_text(by_hand, group, rows[1]).tracks["clipped"] == [0, 0, 1, 0]  # advantage below 0: the lower side
    assert (said.policy, said.missing) == ("current", {})


def test_a_letter_cut_in_two_stands_with_the_token_that_ends_it(by_hand):
    group = groups_of(by_hand, 1)[1]
    said = token_text(by_hand, group, siblings(by_hand, group)[0])
    assert said.words == (" caf", "", "\u00e9")
    made = columns(said, coverage(by_hand, 1))
    assert made["words"] == [" caf", "", "\u00e9"]


def test_what_was_not_recorded_is_named_with_its_reason(tmp_path):
    record(tmp_path / "a", made=hand, change=lambda r: r.with_(entropy=None))
    data = opened(tmp_path / "a")
    group = groups_of(data, 1)[0]
    said = token_text(data, group, siblings(data, group)[0])
    assert set(said.missing) == {"entropy", "ratio", "clipped"}
    assert "needs" in said.missing["ratio"]
    assert "Not on record: entropies" in covered(coverage(data, 1))


@pytest.mark.parametrize(
    ("options", "words"),
    [({"retention": "none"}, 'tokens = "none"'), ({"retention": "sample", "share": 1e-6}, "0.0001 % of the groups")],
)
def test_tokens_that_were_not_kept_leave_the_text(tmp_path, options, words):
    record(tmp_path, made=hand, **options)
    data = opened(tmp_path)
    group = groups_of(data, 1)[1]
    said = token_text(data, group, siblings(data, group)[0])
    assert (said.words, said.text) == ((), "caf\u00e9")
    assert words in said.missing["logp"]
    assert words in covered(coverage(data, 1))
    made = columns(said, coverage(data, 1))
    assert (made["text"], made["words"]) == ("caf\u00e9", [])
    assert words in made["why"]


def test_ids_stand_for_tokens_where_no_vocabulary_is_on_record(tmp_path):
    record(tmp_path, made=hand, pieces=None)
    data = opened(tmp_path)
    group = groups_of(data, 1)[1]
    assert token_text(data, group, siblings(data, group)[0]).words == (
        "\u27e811\u27e9",
        "\u27e812\u27e9",
        "\u27e813\u27e9",
    )
    assert "no vocabulary" in covered(coverage(data, 1))


def test_special_tokens_are_marked(tmp_path):
    ends = np.array([2, 15, 15, 15], np.int32)
    record(
        tmp_path, made=hand, change=lambda r: r.with_(tokens=Ragged(np.r_[ends, r.tokens.values[4:]], r.tokens.offsets))
    )
    data = opened(tmp_path)
    group = groups_of(data, 1)[0]
    row = next(s for s in siblings(data, group) if s.id == "1:p0:0")
    assert token_text(data, group, row).special == (1, 2, 3)


def long(rollouts, n=60_000):
    paths = [np.arange(n) % 15, *list(rollouts.tokens.rows())[1:]]
    tokens = Ragged.of(paths, np.int32)
    blank = Ragged(np.full(len(tokens.values), -0.25, np.float32), tokens.offsets)
    none = np.full(4, "", object)
    text = rollouts.text.copy()
    text[0] = "A" * 200_000
    return rollouts.with_(
        tokens=tokens, logp=blank, entropy=blank, length=tokens.lengths, text=text, parent=none,
        fork_at=np.full(4, -1), finish=np.full(4, "stop", object), extra={},
    )  # fmt: skip


def test_long_rollouts_are_cut_and_say_so(tmp_path):
    record(tmp_path, made=hand, change=long)
    data = opened(tmp_path)
    group = groups_of(data, 1)[0]
    row = next(s for s in siblings(data, group) if s.length == 60_000)
    first = columns(token_text(data, group, row), coverage(data, 1))
    assert (len(first["words"]), first["more"]) == (2_000, "show all 60,000 tokens")
    assert len(json.dumps(first)) < 150_000
    whole = columns(token_text(data, group, row, whole=True), coverage(data, 1))
    assert (len(whole["words"]), whole["more"]) == (20_000, "")
    assert whole["rest"] == "20,000 of 60,000 tokens; the rest is in the store"


def test_hostile_pieces_and_texts_reach_the_browser_visible(tmp_path, hostile):
    pieces = [(hostile[i % 8] or "?")[:300].encode().decode("latin-1") for i in range(16)]
    record(tmp_path, made=hand, pieces=pieces, change=lambda r: r.with_(text=np.array(hostile[:4], object)))
    data = opened(tmp_path)
    for group in groups_of(data, 1):
        for row in siblings(data, group):
            made = columns(token_text(data, group, row), coverage(data, 1))
            joined = "".join(made["words"])
            assert not set(joined) & set("\x00\x07\x1b\u202e\u202c")
            assert all(len(w) <= 400 for w in made["words"])
    bad = row._replace(finish="\x1b<b>", reason="\u202e")
    assert sibling(bad)["note"].split(" \u00b7 ")[1] == "\u241b<b>"


def test_the_band_is_that_of_the_loss():
    assert band([{"method": "grpo"}]) == Band(0.8, 1.2, "grpo")
    assert band([{"method": "grpo", "eps_high": 0.28}, {"method": "mopps"}]) == Band(0.8, 1.28, "grpo")
    assert band([{"method": "grpo"}, {"method": "aepo"}]).source == "aepo"
    assert band([{"method": "gspo"}]).low is None
    assert band([{"method": "not installed here"}]).source.startswith("PPO's default")
    assert band(None).high == 1.2


def test_rollouts_out_of_the_loss_show_no_advantage(by_hand):
    group = groups_of(by_hand, 1)[0]
    made = [sibling(s) for s in siblings(by_hand, group)]
    assert [r["advantage"] for r in made] == [1.0, -1.0, None]
    assert made[2]["note"] == "5 tokens \u00b7 pruned \u00b7 low confidence \u00b7 forked at token 3 \u00b7 no reward"
    assert columns(None)["words"] == []
