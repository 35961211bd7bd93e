"""The page of a web export in headless Chromium, from a server for static files."""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from threading import Event
from typing import BinaryIO

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect

from benchmarks.browser import StaticServer
from tests.system.conftest import wait_until
from tfnmt import export
from tfnmt.data.corpora.toy import grammar
from tfnmt.litert.model import LiteRTModel
from tfnmt.loading.models import find_folder
from tfnmt.loading.registry import DEFAULT_MODEL

SENTENCES = 1000
INT8_SENTENCES = 200  # a larger model, which takes more time
UPDATE_CHECK = {"/export/service-worker.js", "/export/files.js"}
"""The requests with which the browser itself looks for a newer export."""

TEXT = "Where can I buy a ticket? The train leaves soon.\n\nThank you!"
TRANSLATION = "Wo kann ich eine Fahrkarte kaufen? Der Zug fährt bald.\n\nDanke!"


@pytest.fixture
def site(web_export: Path) -> Iterator[StaticServer]:
    """A site that has the page in a folder, as many do."""
    site = StaticServer(web_export.parent)
    site.url += f"/{web_export.name}/"
    yield site
    site.stop()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context()
    yield context
    context.close()


def open_page(context: BrowserContext, url: str, problems: list[str]) -> Page:
    """Open the page and wait for the model. Collect what the browser complains about."""
    page = context.new_page()
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(url)
    wait_for_model(page)
    return page


def wait_for_model(page: Page) -> None:
    expect(page.locator("html[data-ready]")).to_be_attached()


@pytest.fixture
def page(context: BrowserContext, site: StaticServer) -> Iterator[Page]:
    """The page with its model. It may log nothing."""
    problems: list[str] = []
    yield open_page(context, site.url, problems)
    assert problems == []


def translate(page: Page, text: str) -> None:
    page.get_by_role("textbox", name="Text to translate").fill(text)


# --- Output ---------------------------------------------------------------------------------------

TRANSLATE_ALL = """async ([texts, target]) => {
  const { Model } = await import("./js/model.js");
  const model = new Model();
  const found = [];
  for (const text of texts) found.push(await model.translate(text, target));
  return found.map(({ text, score }) => [text, score]);
}"""

Output = tuple[str, float]


def both_outputs(
    page: Page, folder: Path, texts: list[str], target: str | None
) -> list[tuple[Output, Output]]:
    """Return text and score from the page and from the LiteRT engine, for each text."""
    found = [tuple(each) for each in page.evaluate(TRANSLATE_ALL, [texts, target])]
    inputs = {"text": [text.encode() for text in texts]}
    if target:
        inputs["target"] = [target.encode()] * len(texts)
    outputs = LiteRTModel(folder, 1).signatures["serving_default"](**inputs)
    expected = [text.decode() for text in outputs["translation"]]
    return list(zip(found, zip(expected, outputs["score"], strict=True), strict=True))


def test_float32_translations_are_those_of_the_litert_engine(
    call: Callable[..., None],
    context: BrowserContext,
    litertjs: Path,
    tiny_litert: Path,
    tmp_path: Path,
) -> None:
    """Every text is equal, unless the scores are: then both texts are equally good."""
    call(export, "--format=web", f"--model={tiny_litert}", f"--output={tmp_path / 'web'}")
    site = StaticServer(tmp_path / "web")
    page = open_page(context, site.url, [])
    texts = [source for source, _ in islice(grammar.pairs("test"), SENTENCES)]
    pairs = both_outputs(page, tiny_litert, texts, None)
    site.stop()
    assert len(pairs) == SENTENCES
    assert [pair for pair in pairs if pair[0][0] != pair[1][0] and not equal_scores(pair)] == []
    assert sum(pair[0][0] == pair[1][0] for pair in pairs) >= 0.99 * SENTENCES


def equal_scores(pair: tuple[Output, Output]) -> bool:
    return pair[0][1] == pytest.approx(pair[1][1], abs=1e-4)


def test_int8_translations_are_those_of_the_litert_engine(page: Page) -> None:
    """Rounding differs between processors. A step of an int8 activation may change the search."""
    texts = [source for source, _ in islice(grammar.pairs("test"), INT8_SENTENCES)]
    pairs = both_outputs(page, find_folder(DEFAULT_MODEL), texts, "de")
    assert sum(pair[0][0] == pair[1][0] for pair in pairs) >= 0.95 * INT8_SENTENCES


def test_text_is_translated_sentence_by_sentence(page: Page) -> None:
    translate(page, TEXT)
    expect(page.locator("#target")).to_have_text(TRANSLATION)


def test_translation_follows_typing_and_languages(page: Page) -> None:
    page.get_by_role("textbox", name="Text to translate").press_sequentially("Thank you!")
    expect(page.locator("#target")).to_have_text("Danke!")
    page.get_by_role("combobox", name="Target language").select_option(label="French")
    expect(page.locator("#target")).to_have_text("Merci !")
    page.get_by_role("button", name="Swap languages").click()
    expect(page.get_by_role("combobox", name="Source language")).to_have_value("fr")
    expect(page.locator("#target")).to_have_text("Thank you.")
    page.get_by_role("button", name="Clear text").click()
    expect(page.locator("#target")).to_be_empty()


EDIT_AND_SWAP = """(text) => {
  const source = document.getElementById("source");
  source.value = text;
  source.dispatchEvent(new Event("input"));
  document.getElementById("swap").click();
}"""


def test_swap_keeps_a_text_that_is_not_translated_yet(page: Page) -> None:
    translate(page, "Thank you!")
    expect(page.locator("#target")).to_have_text("Danke!")
    page.evaluate(EDIT_AND_SWAP, "The dog sleeps.")
    expect(page.get_by_role("combobox", name="Source language")).to_have_value("de")
    expect(page.locator("#source")).to_have_value("The dog sleeps.")


SWAP_AT_FIRST_RESULT = """() => {
  const target = document.getElementById("target");
  const observer = new MutationObserver(() => {
    observer.disconnect();
    document.getElementById("swap").click();
  });
  observer.observe(target, { childList: true });
}"""


def test_swap_keeps_a_text_whose_translation_is_incomplete(page: Page) -> None:
    page.evaluate(SWAP_AT_FIRST_RESULT)
    translate(page, TEXT)
    expect(page.get_by_role("combobox", name="Source language")).to_have_value("de")
    expect(page.locator("#source")).to_have_value(TEXT)


def test_nothing_is_translated_while_an_input_method_composes(page: Page) -> None:
    field = page.get_by_role("textbox", name="Text to translate")
    field.dispatch_event("compositionstart")
    field.press_sequentially("Thank you!")
    page.wait_for_timeout(500)
    expect(page.locator("#target")).to_be_empty()
    field.dispatch_event("compositionend")
    expect(page.locator("#target")).to_have_text("Danke!")


def test_visited_word_highlights_its_source_words(page: Page) -> None:
    translate(page, "The dog sleeps.")
    page.locator(".word", has_text="Hund").hover()
    expect(page.locator("#word")).to_have_text("Hund: dog")
    expect(page.locator("#echo mark")).to_have_text(["dog"])
    page.locator("h1").hover()
    expect(page.locator("#echo mark")).to_have_count(0)
    page.locator(".word").first.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#word")).to_have_text("Hund: dog")


def test_alternative_replaces_the_translation_of_its_sentence(page: Page) -> None:
    translate(page, TEXT)
    expect(page.locator("#target")).to_have_text(TRANSLATION)
    page.locator(".word").first.press("Enter")
    choices = page.locator("#choices button")
    expect(choices.first).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#sentence")).to_have_text("Where can I buy a ticket?")
    other = choices.nth(1).text_content()
    choices.nth(1).press("Enter")
    expect(page.locator("#target")).to_have_text(other + TRANSLATION.partition("?")[2])
    expect(choices.nth(1)).to_have_attribute("aria-pressed", "true")


def test_alternative_has_its_own_alignment_and_moves_with_its_sentence(page: Page) -> None:
    text = "I would like to buy a ticket."
    translate(page, text)
    expect(page.locator("#target")).to_have_text("Ich würde gerne eine Fahrkarte kaufen.")
    page.locator(".word", has_text="kaufen").click()
    page.locator("#choices button", has_text="möchte").click()
    chosen = "Ich möchte eine Fahrkarte kaufen."
    expect(page.locator("#target")).to_have_text(chosen)
    page.locator(".word", has_text="kaufen").hover()
    expect(page.locator("#word")).to_have_text("kaufen: buy")
    translate(page, f"Thank you!\n\n{text}")
    expect(page.locator("#target")).to_have_text(f"Danke!\n\n{chosen}")


# --- Network --------------------------------------------------------------------------------------


def test_nothing_is_requested_after_loading(context: BrowserContext, site: StaticServer) -> None:
    problems: list[str] = []
    page = open_page(context, site.url, problems)
    page.wait_for_timeout(1000)  # the browser looks for a newer export
    requests: list[str] = []
    context.on("request", lambda request: requests.append(request.url))
    before = list(site.requests)
    translate(page, TEXT)
    expect(page.locator("#target")).to_have_text(TRANSLATION)
    page.locator(".word").first.click()
    expect(page.locator("#alternatives")).to_be_visible()
    page.get_by_role("combobox", name="Target language").select_option("es")
    expect(page.locator("#target")).not_to_have_text(TRANSLATION)
    page.wait_for_timeout(500)
    assert requests == []
    assert set(site.requests[len(before) :]) <= UPDATE_CHECK
    assert problems == []


def test_model_is_requested_once(page: Page, site: StaticServer) -> None:
    large = [path for path in site.requests if "/model/" in path or "/litert/" in path]
    assert len(large) == len(set(large)) == 6
    assert not any("compat" in path for path in large)


class LastByteServer(StaticServer):
    """A server that holds back the last byte of the model until it is released."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.released = Event()

    def send(self, path: str, content: bytes, file: BinaryIO) -> None:
        if path.endswith("/model.tflite.gz"):
            file.write(content[:-1])
            self.released.wait()
            content = content[-1:]
        super().send(path, content, file)


def test_progress_of_the_first_download_is_shown(context: BrowserContext, web_export: Path) -> None:
    site = LastByteServer(web_export)
    page = context.new_page()
    page.goto(site.url)
    # The runtime's script is not counted.
    loaded = [*web_export.glob("model/*"), web_export / "litert/litert_wasm_internal.wasm.gz"]
    size = sum(path.stat().st_size for path in loaded)
    expect(page.locator("#progress")).to_have_text(f"{size / 1e6:.1f} MB")
    site.released.set()
    wait_for_model(page)
    site.stop()


IS_KEPT = "async (name) => Boolean(await caches.match(name))"


def test_file_of_another_export_is_not_kept(
    context: BrowserContext, web_export: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(web_export, tmp_path / "site")
    with (folder / "model/model_card.json").open("a") as card:
        card.write("\n")
    site = StaticServer(folder)
    page = open_page(context, site.url, [])
    wait_until(lambda: page.evaluate(IS_KEPT, "model/model.tflite.gz"))
    assert not page.evaluate(IS_KEPT, "model/model_card.json")
    site.stop()


def test_page_works_offline_after_the_first_visit(
    context: BrowserContext, site: StaticServer
) -> None:
    problems: list[str] = []
    page = open_page(context, site.url, problems)
    site.stop()
    page.reload()
    wait_for_model(page)
    translate(page, TEXT)
    expect(page.locator("#target")).to_have_text(TRANSLATION)
    assert problems == []


def replace_heading(folder: Path) -> None:
    """Write an export with another heading to a folder."""
    before = (folder / "index.html").read_bytes()
    after = before.replace(b"<h1>Translation</h1>", b"<h1>Second</h1>")
    (folder / "index.html").write_bytes(after)
    text = (folder / "files.js").read_text().replace('self.VERSION = "', 'self.VERSION = "2')
    checksums = [hashlib.sha256(content).hexdigest() for content in (before, after)]
    (folder / "files.js").write_text(text.replace(*checksums))


WAIT_FOR_NEW_EXPORT = """async () => {
  const registration = await navigator.serviceWorker.getRegistration();
  while (!registration.waiting) await new Promise((resolve) => setTimeout(resolve, 50));
}"""


def test_new_export_replaces_the_old_one_completely(
    context: BrowserContext, web_export: Path, tmp_path: Path
) -> None:
    """Its changed files are loaded at the next visit, its model is not loaded again."""
    folder = shutil.copytree(web_export, tmp_path / "site")
    site, problems = StaticServer(folder), []
    page = open_page(context, site.url, problems)
    replace_heading(folder)
    page.reload()
    wait_for_model(page)
    expect(page.get_by_role("heading", level=1)).to_have_text("Translation")
    page.evaluate(WAIT_FOR_NEW_EXPORT)
    page.close()
    page = open_page(context, site.url, problems)
    expect(page.get_by_role("heading", level=1)).to_have_text("Second")
    assert site.requests.count("/model/model.tflite.gz") == 1
    site.stop()
    page.reload()
    wait_for_model(page)
    assert problems == []


INSTALL = """async () => {
  const registration = await navigator.serviceWorker.getRegistration();
  const installed = new Promise((resolve) => registration.addEventListener("updatefound", () => {
    const { installing } = registration;
    installing.addEventListener("statechange", () => resolve(installing.state));
  }));
  await registration.update();
  return await installed;
}"""


def test_part_of_a_new_export_is_not_kept(
    context: BrowserContext, web_export: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(web_export, tmp_path / "site")
    site = StaticServer(folder)
    page = open_page(context, site.url, [])
    old = (folder / "index.html").read_bytes()
    replace_heading(folder)
    new = (folder / "index.html").read_bytes()
    (folder / "index.html").write_bytes(old)  # not copied yet
    assert page.evaluate(INSTALL) == "redundant"
    (folder / "index.html").write_bytes(new)
    os.utime(folder / "index.html", (time.time() + 60,) * 2)  # the server compares whole seconds
    assert page.evaluate(INSTALL) == "installed"
    site.stop()


# --- Page -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_page_has_no_accessibility_violations(
    browser: Browser, site: StaticServer, scheme: str, width: int
) -> None:
    context = browser.new_context(
        color_scheme=scheme, viewport={"width": width, "height": 800}, reduced_motion="reduce"
    )
    page = open_page(context, site.url, [])
    translate(page, TEXT)
    page.locator(".word").first.click()
    expect(page.locator("#alternatives")).to_be_visible()
    report = Axe().run(page).response
    assert [each["id"] for each in report["violations"]] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()


def test_page_can_be_installed(context: BrowserContext, site: StaticServer) -> None:
    page = open_page(context, site.url, [])
    session = context.new_cdp_session(page)
    errors = session.send("Page.getInstallabilityErrors")["installabilityErrors"]
    assert [error["errorId"] for error in errors] == ["in-incognito"]  # as all pages of tests are
    manifest = session.send("Page.getAppManifest")
    assert manifest["errors"] == []
    assert json.loads(manifest["data"])["start_url"] == "./"


def test_policy_refuses_other_servers_and_inline_scripts(
    context: BrowserContext, site: StaticServer
) -> None:
    page = open_page(context, site.url, [])
    policy = page.locator("meta[http-equiv='Content-Security-Policy']").get_attribute("content")
    assert "unsafe-inline" not in policy
    assert "'unsafe-eval'" not in policy
    assert page.evaluate(
        """() => new Promise((resolve) => {
          document.addEventListener("securitypolicyviolation", (event) => {
            resolve(event.violatedDirective);
          });
          fetch("http://127.0.0.1:9/").catch(() => {});
        })"""
    ).startswith("connect-src")


def test_missing_model_is_reported(
    context: BrowserContext, web_export: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(web_export, tmp_path / "site")
    (folder / "model/model.tflite.gz").unlink()
    site = StaticServer(folder)
    page = context.new_page()
    page.goto(site.url)
    expect(page.get_by_role("status").first).to_have_text(
        "The model cannot be loaded: model/model.tflite.gz: the server answered 404"
    )
    site.stop()
