"""The console in a real browser shows what the router says, and does what its operator asks."""

import json
import os
import re
from pathlib import Path

import pytest
from conftest import CONFIG, ROOT, call
from page import JOB, dialog, opened, state, text_of, until
from program import Sluice
from selenium.webdriver.common.by import By

# Where screenshots are kept, if anywhere.
SHOTS = os.environ.get("SLUICE_SCREENSHOTS")
SIZES = {"light": (1280, 1500), "dark": (1280, 1500), "phone": (390, 2420)}


def submit_job(browser):
    """Submits the job through the page, and returns its number once the page tells it."""
    until(browser, "jobs are shown", lambda: dialog(browser, "job-line").is_displayed())
    dialog(browser, "job-line").send_keys(JOB)
    dialog(browser, "job-submit").click()
    told = until(browser, "the job is taken", lambda: text_of(browser, "#job-told"))
    return int(re.match(r"Job (\d+) is ", told).group(1))


def cancel_job(browser, number):
    """Cancels a job through the page."""
    browser.find_element(By.CSS_SELECTOR, f"tr[data-job='{number}'] .act button").click()
    until(browser, "it asks", lambda: dialog(browser, "ask-cancel").is_displayed())
    dialog(browser, "ask-cancel").find_element(By.CSS_SELECTOR, "button[value=cancel-job]").click()


def drawn(browser):
    """The fleet as drawn: each slice's place in its bar, in parts of the bar, and who is on it."""
    return browser.execute_script(
        """
        const found = {};
        for (const gpu of document.querySelectorAll(".gpu")) {
          const bar = gpu.querySelector(".bar");
          const style = getComputedStyle(bar);
          const room = bar.clientWidth - parseFloat(style.paddingLeft) * 2 + parseFloat(style.columnGap);
          const left = bar.getBoundingClientRect().left + bar.clientLeft + parseFloat(style.paddingLeft);
          for (const slice of bar.querySelectorAll(".slice")) {
            const box = slice.getBoundingClientRect();
            found[slice.dataset.slice] = {
              gpu: gpu.dataset.gpu,
              profile: slice.dataset.profile,
              from: (box.left - left) / room,
              width: (box.width + parseFloat(style.columnGap)) / room,
              replicas: [...slice.querySelectorAll(".replica")].map((replica) => [
                replica.dataset.model, replica.dataset.state]),
            };
          }
        }
        return found;
        """
    )


def test_the_fleet_is_drawn_slice_by_slice_as_the_router_has_it(browser, sluice):
    opened(browser, sluice)
    truth = state(sluice)
    gpus = [gpu for worker in truth["workers"] for gpu in worker["gpus"]]
    wanted = sum(len(gpu["slices"]) for gpu in gpus)
    until(browser, "the fleet is drawn", lambda: len(drawn(browser)) == wanted)
    found = drawn(browser)
    for gpu in gpus:
        cells = gpu["memory_slices"]
        for slice_ in gpu["slices"]:
            shown = found.pop(slice_["slice"])
            assert (shown["gpu"], shown["profile"]) == (gpu["gpu"], slice_["profile"])
            assert shown["from"] == pytest.approx(slice_["start"] / cells, abs=0.01)
            assert shown["width"] == pytest.approx(slice_["memory_slices"] / cells, abs=0.01)
            replicas = [[replica["model"], replica["state"]] for replica in slice_["replicas"]]
            assert shown["replicas"] == replicas
    assert not found


def test_the_numbers_of_a_model_move_by_themselves(browser, sluice):
    opened(browser, sluice)

    def served():
        cells = browser.find_elements(By.CSS_SELECTOR, "#tenants tbody tr:first-child td")
        return int(cells[1].text.replace(",", "")) if cells else 0

    first = until(browser, "something is served", served)
    until(browser, "more is served", lambda: served() > first)
    words = browser.find_element(By.CSS_SELECTOR, ".card[data-model=crowded]").text
    assert "100 ms for 95 %" in words
    refused = browser.find_element(By.CSS_SELECTOR, "#refusals tbody tr:nth-child(2)").text
    assert re.match(r"crowded [\d,]+ 0 ", refused), refused


def test_a_card_shows_percentiles_and_the_share_in_time(browser, sluice):
    opened(browser, sluice)
    row = (By.CSS_SELECTOR, ".card[data-model=steady] .latency tbody tr")

    def cells():
        found = browser.find_elements(*row)
        return [cell.text for cell in found[0].find_elements(By.TAG_NAME, "td")] if found else []

    shown = until(browser, "a tail is known", lambda: (told := cells()) and "–" not in told and told)
    truth = next(model for model in state(sluice)["models"] if model["name"] == "steady")
    minute = truth["latency"]["minute"]
    for text, value in [(shown[0], minute["p50_ms"]), (shown[1], minute["p99_ms"])]:
        assert float(re.match(r"([\d.]+) ms", text)[1]) == pytest.approx(value, rel=0.5)
    assert re.fullmatch(r"\d+\.\d\d %", shown[2])
    assert minute["p50_ms"] <= minute["p99_ms"] <= truth["slo_ms"] * 10


def test_every_chart_shows_the_ends_of_its_scale(browser, sluice):
    opened(browser, sluice)
    until(browser, "charts are drawn", lambda: len(history(browser)) > 1)
    plots = browser.find_elements(By.CSS_SELECTOR, ".card[data-model=steady] .plot")
    ends = [[plot.find_element(By.CLASS_NAME, end).text for end in ("top", "bottom")] for plot in plots]
    assert len(ends) == 4
    assert ends[0][0] == "100.00 %" and ends[0][1].endswith(" %")
    assert all(bottom == "0" for _, bottom in [ends[1], ends[3]])


def test_a_slice_opens_to_its_processes_and_replicas(browser, sluice):
    opened(browser, sluice)
    slices = [slice_ for worker in state(sluice)["workers"] for gpu in worker["gpus"] for slice_ in gpu["slices"]]
    used = next(slice_ for slice_ in slices if slice_["replicas"])
    button = (By.CSS_SELECTOR, f".slice[data-slice='{used['slice']}'] button")
    until(browser, "the fleet is drawn", lambda: browser.find_elements(*button))
    browser.find_element(*button).click()
    until(browser, "it opens", lambda: dialog(browser, "detail").is_displayed())
    words = dialog(browser, "detail").text
    assert used["replicas"][0]["model"] in words and used["position"] in words
    assert str(used["lanes"][0]["pid"]) in words
    dialog(browser, "detail").find_element(By.CSS_SELECTOR, "menu button").click()


def test_without_the_key_nothing_is_shown_and_a_wrong_one_is_told(browser, sluice):
    opened(browser, sluice, key="guess")
    wrong = browser.find_element(By.ID, "key-wrong")
    until(browser, "the key is refused", lambda: wrong.is_displayed())
    assert not drawn(browser)
    assert "key" in wrong.text


def test_a_reload_from_the_page_puts_an_objective_in_force(browser, tmp_path):
    text = CONFIG.read_text()
    for name in ["steady.csv", "crowded.csv"]:
        (tmp_path / name).write_text((ROOT / "tests" / "seeing" / name).read_text())
    file = tmp_path / "seeing.toml"
    file.write_text(text)
    running = Sluice("--config", str(file))
    opened(browser, running)
    until(browser, "the models are shown", lambda: browser.find_elements(By.CLASS_NAME, "card"))
    file.write_text(text.replace("slo_ms = 200", "slo_ms = 150"))
    browser.find_element(By.ID, "reload").click()
    until(browser, "the change is told", lambda: dialog(browser, "told").is_displayed())
    assert "model.steady.slo_ms: 200 to 150" in dialog(browser, "told").text
    dialog(browser, "told").find_element(By.TAG_NAME, "button").click()
    card = (By.CSS_SELECTOR, ".card[data-model=steady]")
    until(browser, "it is in force", lambda: "150 ms" in browser.find_element(*card).text)

    file.write_text(text.replace("slo_ms", "slow_ms"))
    browser.find_element(By.ID, "reload").click()
    until(browser, "the problems are told", lambda: dialog(browser, "told").is_displayed())
    assert "seeing.toml:" in dialog(browser, "told").text
    dialog(browser, "told").find_element(By.TAG_NAME, "button").click()

    browser.find_element(By.ID, "drain").click()
    dialog(browser, "ask-drain").find_element(By.CSS_SELECTOR, "button[value=drain]").click()
    assert running.process.wait(timeout=60) == 0


def test_an_objective_is_changed_through_the_page_with_its_effect_first(browser, sluice):
    opened(browser, sluice)
    button = (By.CSS_SELECTOR, ".card[data-model=steady] button.objective")
    until(browser, "the models are shown", lambda: browser.find_elements(*button))
    browser.find_element(*button).click()
    box, apply = dialog(browser, "objective"), dialog(browser, "objective-apply")
    until(browser, "it is asked for", box.is_displayed)
    assert not apply.is_enabled(), "what was not seen cannot be applied"
    wanted = dialog(browser, "objective-ms")

    wanted.clear()
    wanted.send_keys("1")
    dialog(browser, "objective-preview").click()
    wrong = dialog(browser, "objective-wrong")
    until(browser, "what cannot be is refused", lambda: "ms at best" in wrong.text)
    assert not apply.is_enabled()

    wanted.clear()
    wanted.send_keys("150")
    dialog(browser, "objective-preview").click()
    until(browser, "the effect is told", apply.is_enabled)
    words = dialog(browser, "objective-effect").text
    assert "model.steady.slo_ms: 200 to 150" in words
    assert "as it is" in words and "2 replicas" in words
    assert objective(sluice, "steady") == 200, "looking changes nothing"
    if SHOTS:
        Path(SHOTS, "objective.png").write_bytes(browser.get_screenshot_as_png())
    apply.click()
    until(browser, "it is told", lambda: dialog(browser, "told").is_displayed())
    assert "next reload brings back slo_ms = 200" in dialog(browser, "told").text
    dialog(browser, "told").find_element(By.TAG_NAME, "button").click()
    assert objective(sluice, "steady") == 150
    until(browser, "it is shown", lambda: "150 ms" in browser.find_element(*button).text)

    body = json.dumps({"model": "steady", "slo_ms": 200, "apply": True}).encode()
    assert call(f"http://{sluice.admin}/admin/v1/objective", "operator", body)[0] == 200


def objective(sluice, name):
    """A model's objective, as the router has it."""
    return next(model["slo_ms"] for model in state(sluice)["models"] if model["name"] == name)


def test_a_job_is_submitted_watched_and_cancelled_through_the_page(browser, sluice):
    opened(browser, sluice)
    number = submit_job(browser)
    row = f"tr[data-job='{number}']"

    def steps():
        found = re.match(r"(\d+) of 3000", text_of(browser, f"{row} .progress"))
        return int(found.group(1)) if found else 0

    first = until(browser, "it says how far it is", steps)
    until(browser, "it goes on", lambda: steps() > first)
    assert text_of(browser, f"{row} .state") == "running"
    lent = [
        slice_["slice"]
        for worker in state(sluice)["workers"]
        for gpu in worker["gpus"]
        for slice_ in gpu["slices"]
        if slice_["job"] == number
    ]
    assert len(lent) == 1
    assert text_of(browser, f".slice[data-slice='{lent[0]}'] .loan[data-job='{number}']")

    browser.find_element(By.CSS_SELECTOR, f"{row} th button").click()
    until(browser, "its output comes", lambda: "counts to 3000" in text_of(browser, "#detail-log"))
    assert "counting.py" in text_of(browser, "#detail-facts")
    dialog(browser, "detail").find_element(By.CSS_SELECTOR, "menu button").click()

    cancel_job(browser, number)
    until(browser, "it ends", lambda: text_of(browser, f"{row} .state") == "cancelled")
    gone = (By.CSS_SELECTOR, f".loan[data-job='{number}']")
    until(browser, "its slice is free", lambda: not browser.find_elements(*gone))


def test_a_command_line_that_makes_no_sense_is_told_beside_it(browser, sluice):
    opened(browser, sluice)
    until(browser, "jobs are shown", lambda: dialog(browser, "job-line").is_displayed())
    wrong = dialog(browser, "job-wrong")
    for line, why in [("rm -rf /", "not allowed"), ("python3 'half", "quote is not closed")]:
        dialog(browser, "job-line").clear()
        dialog(browser, "job-line").send_keys(line)
        dialog(browser, "job-submit").click()
        until(browser, f"{line} is refused", lambda why=why: why in wrong.text)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("objective", {"model": "steady", "slo_ms": 150, "apply": True}),
        ("jobs", {"argv": ["python3"], "tenant": "lab"}),
        ("workers/local/drain", {"apply": True}),
        ("models/steady/pin", {"worker": "local", "gpu": 0, "position": "3g.40gb@0", "apply": True}),
    ],
)
@pytest.mark.parametrize(("key", "status"), [(None, 401), ("guess", 401), ("search", 403)])
def test_nothing_is_steered_without_the_key(sluice, path, body, key, status):
    url = f"http://{sluice.admin}/admin/v1/{path}"
    told, reply = call(url, key, json.dumps(body).encode())
    assert told == status, reply
    assert "key" in json.loads(reply)["error"]
    now = state(sluice)
    assert objective(sluice, "steady") == 200
    assert (now["pins"], [worker["drain"] for worker in now["workers"]]) == ([], [None])


def test_a_key_that_opens_no_more_is_told_where_it_was_used(browser, sluice):
    opened(browser, sluice)
    until(browser, "jobs are shown", lambda: dialog(browser, "job-line").is_displayed())
    # The page goes on being fed by the connection it has, and asks with the key of its tab.
    browser.execute_script(
        """
        const real = window.fetch;
        window.fetch = (path, options) => real(path, { ...options, headers: {} });
        """
    )
    dialog(browser, "job-line").send_keys("python3 -V")
    dialog(browser, "job-submit").click()
    wrong = dialog(browser, "job-wrong")
    until(browser, "the job is refused", lambda: "key" in wrong.text)
    browser.find_element(By.CSS_SELECTOR, ".card[data-model=steady] button.objective").click()
    dialog(browser, "objective-preview").click()
    wrong = dialog(browser, "objective-wrong")
    until(browser, "the objective is refused", lambda: "key" in wrong.text)
    assert objective(sluice, "steady") == 200


@pytest.mark.parametrize("look", SIZES)
def test_the_page_fits_its_window_in_every_look(browser, sluice, look):
    width, height = SIZES[look]
    features = [{"name": "prefers-color-scheme", "value": "dark" if look == "dark" else "light"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": look == "phone"}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    opened(browser, sluice)
    until(browser, "the models are shown", lambda: browser.find_elements(By.CLASS_NAME, "card"))
    wide = browser.execute_script("return document.documentElement.scrollWidth")
    assert wide <= width, f"{wide} pixels wide in a window of {width}"
    for table in browser.find_elements(By.CSS_SELECTOR, ".scroll"):
        if table.is_displayed() and look == "phone":
            hidden = browser.execute_script("return arguments[0].scrollWidth - arguments[0].clientWidth", table)
            assert hidden <= 0, f"{hidden} pixels of a table are out of sight: {table.text}"
    # What the router refuses, such as a caller without a key, is logged too; that is no mistake.
    severe = [line for line in browser.get_log("browser") if line["level"] == "SEVERE"]
    assert all(line["source"] == "network" for line in severe), severe
    if SHOTS:
        until(browser, "charts are drawn", lambda: len(history(browser)) > 3)
        number = submit_job(browser)
        row = f"tr[data-job='{number}'] .progress"
        until(browser, "a job runs", lambda: "of" in text_of(browser, row))
        Path(SHOTS, f"console-{look}.png").write_bytes(browser.get_screenshot_as_png())
        cancel_job(browser, number)
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def history(browser):
    """Points of the first chart."""
    path = browser.find_elements(By.CSS_SELECTOR, ".chart path")
    return re.findall("[ML]", path[0].get_attribute("d")) if path else []
