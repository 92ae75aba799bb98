"""Reports in a real browser: silent, self-contained, readable, and usable by keyboard.

``make test-browser`` runs these tests, ``make test`` leaves them out.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import pathlib
import shutil

import pytest

pytest.importorskip("pandas")
pytest.importorskip("jinja2")
webdriver = pytest.importorskip("selenium.webdriver")
By = pytest.importorskip("selenium.webdriver.common.by").By
Keys = pytest.importorskip("selenium.webdriver.common.keys").Keys

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
if CHROMIUM is None or DRIVER is None:
    pytest.skip("needs chromium and chromedriver", allow_module_level=True)

_file = pathlib.Path(__file__).parents[1] / "report" / "pages.py"
_spec = importlib.util.spec_from_file_location("report_pages", _file)
pages = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(pages)

#: Text whose contrast with its background is below 4.5 (WCAG AA): ratio and words.
LOW_CONTRAST = """
const value = c => { c /= 255;
  return c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4; };
const light = ([r, g, b]) => .2126 * value(r) + .7152 * value(g) + .0722 * value(b);
const parse = s => s.match(/[\\d.]+/g).map(Number);
const low = [];
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const node = walk.currentNode, owner = node.parentElement;
  if (!node.data.trim() || owner.tagName === 'title') continue;
  if (!owner.getClientRects().length) continue;
  const style = getComputedStyle(owner);
  const ink = parse(owner.namespaceURI.endsWith('svg') ? style.fill : style.color);
  let back = owner, paper = [255, 255, 255];
  for (; back; back = back.parentElement) {
    const found = parse(getComputedStyle(back).backgroundColor);
    if (found.length === 3 || found[3] > 0) { paper = found; break; }
  }
  const [a, b] = [light(ink), light(paper)].sort((x, y) => y - x);
  const ratio = (a + .05) / (b + .05);
  if (ratio < 4.5) low.push([ratio, node.data.trim()]);
}
return low;
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu"):
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    options.set_capability(
        "goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"}
    )
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(
    scope="module",
    params=[
        "two classes",
        "three classes",
        "regression",
        "missing views",
        "mixed table",
    ],
)
def page(request, browser, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(pages.text_of(request.param), encoding="utf-8")
    browser.get_log("performance")
    _emulate(browser, 1200, "light")
    browser.get(path.as_uri())
    return path


def _emulate(browser, width, scheme, media=""):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"media": media, "features": features}
    )


def test_silent_and_alone(browser, page):
    assert browser.get_log("browser") == []
    asked = [
        event["params"]["request"]["url"]
        for event in (
            json.loads(entry["message"])["message"]
            for entry in browser.get_log("performance")
        )
        if event["method"] == "Network.requestWillBeSent"
    ]
    assert set(asked) - {"data:,"} == {page.as_uri()}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(browser, page, scheme):
    _emulate(browser, 1200, scheme)
    browser.execute_script(
        "for (const d of document.querySelectorAll('details')) d.open = true"
    )
    assert browser.execute_script(LOW_CONTRAST) == []


def test_dark_is_dark_and_paper_is_white(browser, page):
    script = "return getComputedStyle(document.body).backgroundColor"
    _emulate(browser, 1200, "dark")
    assert browser.execute_script(script) == "rgb(20, 24, 29)"
    _emulate(browser, 1200, "dark", "print")
    assert browser.execute_script(script) == "rgb(255, 255, 255)"
    assert browser.execute_script(LOW_CONTRAST) == []
    printed = browser.execute_cdp_cmd("Page.printToPDF", {})["data"]
    assert base64.b64decode(printed).startswith(b"%PDF")
    _emulate(browser, 1200, "light")


def test_narrow(browser, page):
    _emulate(browser, 400, "light")
    sizes = "return [document.documentElement.scrollWidth, innerWidth]"
    assert browser.execute_script(sizes) == [400, 400]
    smallest = """return Math.min(...[...document.querySelectorAll('.chart text')].map(
        t => parseFloat(getComputedStyle(t).fontSize) * t.getScreenCTM().a || 99))"""
    unrotated = smallest.replace(".chart text", ".chart text:not([transform])")
    assert browser.execute_script(unrotated) >= 10
    _emulate(browser, 1200, "light")


def test_named_for_screen_readers(browser, page):
    nameless = """return [...document.querySelectorAll(
        'svg[role=img], [role=region], nav')].filter(
        e => !(e.getAttribute('aria-label') || '').trim()).length"""
    assert browser.execute_script(nameless) == 0
    unnamed = """return [...document.querySelectorAll('svg')].filter(e =>
        !e.matches('[role=img]') && e.getAttribute('aria-hidden') !== 'true').length"""
    assert browser.execute_script(unnamed) == 0
    assert len(browser.find_elements(By.TAG_NAME, "h1")) == 1
    headings = """const found = document.querySelectorAll('h1, h2, h3');
        const all = [...found].map(h => +h.tagName[1]);
        return all.every((level, i) => i === 0 || level <= all[i - 1] + 1)"""
    assert browser.execute_script(headings)


def test_tab_order_is_that_of_the_page(browser, page):
    browser.execute_script("document.activeElement.blur(); scrollTo(0, 0)")
    wanted = browser.execute_script(
        """window.stops = [...document.querySelectorAll('a, summary, [tabindex]')]
        .filter(e => e.checkVisibility()); return stops.length"""
    )
    body, order = browser.find_element(By.TAG_NAME, "body"), []
    for _ in range(wanted):
        body.send_keys(Keys.TAB)
        body = browser.switch_to.active_element
        order.append(
            browser.execute_script("return stops.indexOf(document.activeElement)")
        )
    assert order == list(range(wanted))
