"""The steering bar in Chromium, against a run of another process: every click reaches it and comes back recorded."""

import re
import time

import pytest
from browsing import says

driver = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
pytestmark = [pytest.mark.browser, pytest.mark.slow]


def press(page, label):
    button = page.locator("button:not([disabled])", has_text=re.compile(rf"{label}\s*$"))  # icons come first, as words
    button.first.click(timeout=20_000)


def commands(remote):
    return remote._store.ask("commands", run=remote.run).to_pylist()


def until(remote, kind, n=1, timeout=30):
    """The newest recorded command of a kind, once there are n of them."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        found = [c for c in commands(remote) if c["kind"] == kind]
        if len(found) >= n:
            return found[-1]
        time.sleep(0.1)
    raise AssertionError(f"no {kind} among {[c['kind'] for c in commands(remote)]}")


def fill(page, label, value):
    box = page.get_by_label(label, exact=True).first
    box.fill(str(value))
    box.press("Tab")
    page.wait_for_timeout(400)


def test_every_button_reaches_the_run(opened, elsewhere):
    process, remote = elsewhere
    page = opened(remote.store_url)
    says(page, "Evaluation solved")
    press(page, "Pause")
    until(remote, "pause")
    page.locator(".badge", has_text="paused").first.wait_for(timeout=20_000)
    at = remote.n_steps
    press(page, "One step")
    assert until(remote, "step")["step"] == at + 1
    page.locator(".value", has_text=f"{at + 1:,} of").wait_for(timeout=20_000)
    press(page, "Checkpoint")
    assert until(remote, "checkpoint")["step"] == at + 1
    press(page, "Steer")
    says(page, "Settings of a step", "What was asked")

    fill(page, "Prompts a step", 5)
    fill(page, "Rollouts of each", 6)
    press(page, "Apply at the next step")
    assert '"to": {"prompts": 5, "rollouts": 30}' in until(remote, "set")["payload"]
    says(page, f"acts at step {at + 2:,}")
    press(page, "One step")
    says(page, f"applied at step {at + 2:,}")

    fill(page, "Pipeline", "grpo + vade")
    press(page, "Swap")
    until(remote, "swap")
    fill(page, "Pipeline", "grpo + nonsense")
    press(page, "Swap")
    until(remote, "refused")
    says(page, "no method 'nonsense'")
    fill(page, "Method", "dr_grpo")
    press(page, "Add")
    until(remote, "swap", 2)
    fill(page, "Method", "vade")
    press(page, "Remove")
    assert '"to": [{"method": "grpo"}, {"method": "dr_grpo"}]' in until(remote, "swap", 3)["payload"]
    press(page, "Undo")
    assert '"undoes"' in until(remote, "swap", 4)["payload"]

    press(page, "Pin")
    says(page, "Choose a prompt first")
    page.wait_for_timeout(2500)
    says(page, "Choose a prompt first")
    fill(page, "Your name", "ada")
    page.wait_for_function("Object.values(localStorage).includes('ada')", timeout=20_000)
    prompt = remote._store.sql("SELECT prompt_id FROM prompts WHERE pool = 'train'")["prompt_id"][3].as_py()
    page.goto(page.url + ("&" if "?" in page.url else "?") + f"prompt={prompt}")
    says(page, "Evaluation solved")
    press(page, "Steer")
    says(page, "as any other")
    driver.expect(page.get_by_label("Your name", exact=True).first).to_have_value(
        "ada", timeout=20_000
    )  # kept by the browser
    for label in ("Pin", "Boost", "Drop", "Free"):
        press(page, label)
        assert prompt in until(remote, label.lower())["payload"]
    press(page, "Go on")
    until(remote, "resume")
    at = remote.n_steps
    while remote.n_steps < at + 3:
        time.sleep(0.1)
    press(page, "Pause")  # or the page is busy with a hundred steps a second
    until(remote, "pause", 2)
    press(page, "Stop")
    press(page, "Click again to stop")
    assert process.wait(30) == 0
    assert until(remote, "stop")["who"] == "ada, page"
    page.locator(".badge", has_text="stopped").first.wait_for(timeout=20_000)
