"""The pages of one group in headless Chromium: tree, tokens and signs, by mouse and by keyboard, with hostile texts."""

import numpy as np
import pytest
from browsing import drawn, says
from grown import hand, record

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_a_tree_is_hovered_walked_by_keys_and_leads_to_the_tokens(opened, tmp_path):
    record(tmp_path, made=hand)
    page = opened(tmp_path, "?page=tree")
    says(page, "2 forks", "low confidence", "Sharing 1.29")
    page.locator(".target").nth(0).hover(force=True)
    says(page, "shared by 3 rollouts", "the sum")
    page.locator(".scroll").focus()
    page.keyboard.press("ArrowDown")
    says(page, "tokens 3 to 4", "is 4")
    page.keyboard.press("ArrowDown")
    says(page, "tokens 4 to 5", ", so")
    page.keyboard.press("ArrowLeft")
    says(page, "shared by 2 rollouts")
    page.keyboard.press("a")
    page.locator("button.on", has_text="advantage").wait_for()
    page.keyboard.press("n")
    says(page, "flat: nothing forked")
    page.keyboard.press("p")
    says(page, "2 forks")
    page.locator(".target").nth(1).click(force=True)
    says(page, "Tokens of a rollout", "3 rollouts of this group")
    page.wait_for_url("**page=tokens**rollout=1%3Ap0%3A0**")


def test_tokens_are_coloured_hovered_and_siblings_chosen_by_keys(opened, tmp_path):
    record(tmp_path, made=hand)
    page = opened(tmp_path, "?page=tokens&rollout=1:p0:0&step=1")
    says(page, "Tokens of a rollout", "Not on record: logprobs of the current policy")
    body = page.locator(".body")
    assert [t.text_content() for t in body.locator(".t").all()] == [" the", " sum", " is", " 4"]
    page.get_by_role("radio", name="entropy").click()
    body.locator(".t").nth(2).hover()
    says(page, "token 3 of 4", "entropy 1.500 nats", "id 2")
    strong, weak = (body.locator(".t").nth(i).evaluate("e => e.style.backgroundColor") for i in (2, 0))
    assert strong != weak
    assert page.get_by_role("radio", name="ratio").is_disabled()
    page.locator(".side").focus()
    page.keyboard.press("ArrowUp")
    page.wait_for_url("**rollout=1%3Ap0%3A1**")
    page.wait_for_function("() => true")
    says(page, "forked at token 2")
    page.locator(".row.on", has_text="5 tokens").wait_for()


def test_hostile_texts_and_pieces_stay_text(opened, tmp_path, hostile):
    pieces = [(hostile[i % 8] or "?")[:300].encode().decode("latin-1") for i in range(16)]
    record(
        tmp_path,
        pieces=pieces,
        text=hostile[0],
        change=lambda r: r.with_(text=np.array([hostile[i % 8] for i in range(len(r))], object)),
    )
    page = opened(tmp_path, "?page=tokens")
    says(page, "rollouts of this group")
    for query in ("?page=tree", "?page=signs", "?page=tokens"):
        page.goto(page.url.split("?")[0] + query)
        says(page, "window.hit=1")
        drawn(page)
        assert page.locator("img[src='x']").count() == 0
        assert page.locator("svg[onload]").count() == 0
        assert page.evaluate("window.hit ?? null") is None


def test_whole_texts_of_rollouts_without_tokens(opened, tmp_path, hostile):
    texts = np.array([hostile[2], "b", "c", "d"], object)
    record(tmp_path, made=hand, retention="none", change=lambda r: r.with_(text=texts))
    page = opened(tmp_path, "?page=tokens&rollout=1:p0:0&step=1")
    says(page, 'tokens = "none"')
    page.get_by_text("show all 200,000 characters").click()
    page.wait_for_function(
        "() => { const f = r => [...r.querySelectorAll('*')].some(e => (e.className === 'plain' && e.textContent.length === 200000) || (e.shadowRoot && f(e.shadowRoot))); return f(document) }"
    )


def test_signs_are_drawn_and_two_estimators_compared(opened, recording):
    rec = recording(prompts=12).go(6)
    page = opened(recording.store, "?page=signs")
    says(
        page,
        "Signs over the steps",
        "By group size and difficulty",
        "One group against its reference",
        "Why signs flip",
        "posterior",
    )
    page.get_by_role("button", name="Compare").click()
    says(page, "groups drawn of each")
    rec.go(1)
    says(page, "step 7")


@pytest.mark.parametrize("name", ["tree", "tokens", "signs"])
def test_before_the_first_step_a_page_says_what_to_wait_for(opened, recording, name):
    rec = recording()
    page = opened(recording.store, f"?page={name}")
    says(page, "as soon as a step is recorded")
    rec.go(1)
    says(page, "step 1")
    page.set_viewport_size({"width": 480, "height": 900})
    page.wait_for_function("document.documentElement.scrollWidth <= 480")
