"""The steering bar in Chromium, against a run of another process: every click reaches it and comes back recorded."""

import re

import pytest
from browsing import fill as filled
from browsing import says

from tests.timing import patience, until

driver = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
pytestmark = [pytest.mark.browser, pytest.mark.slow]


def press(page, label):
    button = page.locator("button:not([disabled])", has_text=re.compile(rf"{label}\s*$"))  # icons come first, as words
    button.first.click()


def commands(remote):
    return remote._store.ask("commands", run=remote.run_id).to_pylist()


def newest(remote, kind, n=1):
    """The newest recorded command of a kind, once there are n of them."""

    def found():
        return [c for c in commands(remote) if c["kind"] == kind][n - 1 :]

    return until(found, every=0.1, or_say=lambda: f"no {kind} among {[c['kind'] for c in commands(remote)]}")[-1]


def fill(page, label, value):
    filled(page, page.get_by_label(label, exact=True).first, str(value))


def test_every_button_reaches_the_run(opened, elsewhere):
    process, remote = elsewhere
    page = opened(remote.store_url)
    says(page, "Evaluation solved")
    press(page, "Pause")
    newest(remote, "pause")
    page.locator(".badge", has_text="paused").first.wait_for()
    at = remote.n_steps
    press(page, "One step")
    assert newest(remote, "step")["step"] == at + 1
    page.locator(".value", has_text=f"{at + 1:,} of").wait_for()
    press(page, "Checkpoint")
    assert newest(remote, "checkpoint")["step"] == at + 1
    press(page, "Steer")
    says(page, "Settings of a step", "What was asked")

    fill(page, "Prompts a step", 5)
    fill(page, "Rollouts of each", 6)
    press(page, "Apply at the next step")
    assert '"to": {"prompts": 5, "rollouts": 30}' in newest(remote, "set")["payload"]
    says(page, f"acts at step {at + 2:,}")
    press(page, "One step")
    says(page, f"applied at step {at + 2:,}")

    fill(page, "Pipeline", "grpo + vade")
    press(page, "Swap")
    newest(remote, "swap")
    fill(page, "Pipeline", "grpo + nonsense")
    press(page, "Swap")
    newest(remote, "refused")
    says(page, "no method 'nonsense'")
    fill(page, "Method", "dr_grpo")
    press(page, "Add")
    newest(remote, "swap", 2)
    fill(page, "Method", "vade")
    press(page, "Remove")
    assert '"to": [{"method": "grpo"}, {"method": "dr_grpo"}]' in newest(remote, "swap", 3)["payload"]
    press(page, "Undo")
    assert '"undoes"' in newest(remote, "swap", 4)["payload"]

    press(page, "Pin")
    says(page, "Choose a prompt first")
    page.wait_for_timeout(2500)  # it stays, beyond the next look at the store
    says(page, "Choose a prompt first")
    fill(page, "Your name", "ada")
    page.wait_for_function("Object.values(localStorage).includes('ada')")
    prompt = remote._store.sql("SELECT prompt_id FROM prompts WHERE pool = 'train'")["prompt_id"][3].as_py()
    page.goto(page.url + ("&" if "?" in page.url else "?") + f"prompt={prompt}")
    says(page, "Evaluation solved")
    press(page, "Steer")
    says(page, "as any other")
    driver.expect(page.get_by_label("Your name", exact=True).first).to_have_value("ada")  # kept by the browser
    for label in ("Pin", "Boost", "Drop", "Free"):
        press(page, label)
        assert prompt in newest(remote, label.lower())["payload"]
    press(page, "Go on")
    newest(remote, "resume")
    at = remote.n_steps
    until(lambda: remote.n_steps >= at + 3)
    press(page, "Pause")  # or the page is busy with a hundred steps a second
    newest(remote, "pause", 2)
    press(page, "Stop")
    press(page, "Click again to stop")
    assert process.wait(patience(30)) == 0
    assert newest(remote, "stop")["who"] == "ada, page"
    page.locator(".badge", has_text="stopped").first.wait_for()
