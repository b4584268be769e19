"""Workers are taken out and replicas put elsewhere through the page, and nothing is done unseen."""

import os
from pathlib import Path

import pytest
from conftest import CONFIG
from page import close_told, dialog, opened, state, text_of, until
from program import Sluice
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

SHOTS = os.environ.get("SLUICE_SCREENSHOTS")
WORKER = ".worker[data-worker=local]"


@pytest.fixture(scope="module")
def calm():
    """Serves seeing.toml, and nobody asks it anything."""
    running = Sluice("--config", str(CONFIG))
    yield running
    assert running.stop() == 0


def shot(browser, name):
    if SHOTS:
        Path(SHOTS, f"{name}.png").write_bytes(browser.get_screenshot_as_png())


def places(sluice, model):
    """Where a model's replicas are that are ready."""
    return {
        (int(gpu["gpu"].removeprefix("gpu")), slice_["position"])
        for worker in state(sluice)["workers"]
        for gpu in worker["gpus"]
        for slice_ in gpu["slices"]
        for replica in slice_["replicas"]
        if replica["model"] == model and replica["state"] == "ready"
    }


def test_a_worker_is_taken_out_and_returned_through_the_page(browser, calm):
    opened(browser, calm)
    button = (By.CSS_SELECTOR, f"{WORKER} header button")
    until(browser, "the worker is shown", lambda: browser.find_elements(*button))
    assert browser.find_element(*button).accessible_name == "Take local out for maintenance"
    # By keyboard, as everything can be done.
    browser.find_element(*button).send_keys(Keys.ENTER)
    apply = dialog(browser, "drain-worker-apply")
    until(browser, "what it leads to is told", apply.is_enabled)
    words = dialog(browser, "drain-worker-effect").text
    assert "The fleet cannot hold what is asked of it then" in words
    assert "steady" in words and "2 → 0" in words
    assert state(calm)["workers"][0]["drain"] is None, "looking changes nothing"
    shot(browser, "drain-worker")
    apply.send_keys(Keys.ENTER)
    close_told(browser, "local is being drained")
    pill = f"{WORKER} .pill"
    until(browser, "it is drained", lambda: text_of(browser, pill) == "drained, by operator")
    until(browser, "nothing is on it", lambda: not browser.find_elements(By.CLASS_NAME, "replica"))
    assert state(calm)["workers"][0]["drain"]["state"] == "drained"

    assert browser.find_element(*button).accessible_name == "Return local to service"
    browser.find_element(*button).click()
    close_told(browser, "local is in service again")
    until(browser, "it serves", lambda: text_of(browser, pill) == "in service")
    until(browser, "all are back", lambda: len(places(calm, "steady")) == 2)


def test_a_replica_is_moved_and_unpinned_through_the_page(browser, calm):
    opened(browser, calm)
    button = (By.CSS_SELECTOR, ".card[data-model=crowded] button.place")
    until(browser, "the models are shown", lambda: browser.find_elements(*button))
    ((gpu, position),) = until(browser, "it serves", lambda: places(calm, "crowded"))
    to = (1 - gpu, "3g.40gb@4" if gpu == 0 else "3g.40gb@0")
    browser.find_element(*button).click()
    box, apply = dialog(browser, "pin"), dialog(browser, "pin-apply")
    until(browser, "its places are shown", box.is_displayed)
    assert f"local gpu{gpu} {position}" in text_of(browser, "#pin-seats")
    assert not apply.is_enabled(), "what was not seen cannot be applied"

    Select(dialog(browser, "pin-gpu")).select_by_index(to[0])
    dialog(browser, "pin-position").send_keys("7g.80gb@0")
    dialog(browser, "pin-preview").click()
    wrong = dialog(browser, "pin-wrong")
    until(browser, "a slice that is not is refused", lambda: "cannot be reshaped" in wrong.text)
    assert not apply.is_enabled()

    dialog(browser, "pin-position").clear()
    dialog(browser, "pin-position").send_keys(to[1])
    Select(dialog(browser, "pin-from")).select_by_index(1)
    dialog(browser, "pin-preview").click()
    until(browser, "what it leads to is told", apply.is_enabled)
    words = dialog(browser, "pin-effect").text
    assert f"crowded is loaded on local gpu{to[0]} {to[1]}: pinned by operator operator" in words
    assert f"crowded leaves local gpu{gpu} {position}" in words
    assert state(calm)["pins"] == [], "looking changes nothing"
    shot(browser, "pin")
    apply.click()
    close_told(browser, f"crowded is pinned to {to[1]}")
    until(browser, "it is there and nowhere else", lambda: places(calm, "crowded") == {to})
    until(browser, "the picture says so", lambda: text_of(browser, ".replica small.pin"))
    (pin,) = state(calm)["pins"]
    assert (pin["by"], pin["state"]) == ("operator", "held")

    browser.find_element(*button).click()
    until(browser, "its pin is told", lambda: "pinned by operator" in text_of(browser, "#pin-seats"))
    dialog(browser, "pin-seats").find_element(By.TAG_NAME, "button").click()
    close_told(browser, "crowded may be anywhere again")
    assert state(calm)["pins"] == []


def test_the_focus_stays_where_it_is_while_the_page_is_live(browser, calm):
    opened(browser, calm)
    for selector in [f"{WORKER} header button", ".card[data-model=steady] button.place"]:
        until(browser, "it is shown", lambda s=selector: browser.find_elements(By.CSS_SELECTOR, s))
        browser.execute_script("document.querySelector(arguments[0]).focus()", selector)
        before = text_of(browser, "#build")
        until(browser, "the page has moved on", lambda b=before: text_of(browser, "#build") != b)
        held = browser.execute_script("return document.activeElement.matches(arguments[0])", selector)
        assert held, f"{selector} lost the focus"
