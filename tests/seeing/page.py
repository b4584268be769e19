"""The console in a browser, as an operator uses it."""

import json
import shlex

from conftest import ROOT, call
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

PATIENCE_S = 20

# A job that says how far it is, and ends when it is told to.
JOB = shlex.join(["python3", str(ROOT / "tests" / "seeing" / "counting.py")])


def until(browser, what, condition):
    """Waits for a condition; what is drawn anew meanwhile is looked at again."""
    wait = WebDriverWait(browser, PATIENCE_S, 0.1, [StaleElementReferenceException])
    return wait.until(lambda _: condition(), what)


def opened(browser, sluice, key="operator"):
    """The console, with the key given."""
    browser.get(f"http://{sluice.admin}/")
    browser.execute_script("sessionStorage.clear()")
    browser.refresh()
    until(browser, "the key is asked for", lambda: dialog(browser, "ask-key").is_displayed())
    browser.find_element(By.ID, "key-value").send_keys(key)
    dialog(browser, "ask-key").find_element(By.CSS_SELECTOR, "button[value=use]").click()


def dialog(browser, name):
    return browser.find_element(By.ID, name)


def state(sluice):
    status, body = call(f"http://{sluice.admin}/admin/v1/state", "operator")
    assert status == 200
    return json.loads(body)


def text_of(browser, selector):
    """What an element says, or nothing where there is none."""
    found = browser.find_elements(By.CSS_SELECTOR, selector)
    return found[0].text if found else ""


def close_told(browser, words):
    """Reads what is told, which has these words, and closes it."""
    until(browser, f"{words} is told", lambda: words in dialog(browser, "told").text)
    dialog(browser, "told").find_element(By.TAG_NAME, "button").click()
