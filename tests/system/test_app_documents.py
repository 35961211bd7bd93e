"""Documents, the glossary and language detection on the web page, in headless Chromium."""

import base64
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.system.conftest import App, running_app
from tests.system.test_app_page import TRANSLATE, OpenPage, pages_of, serious, source, target
from tests.tfnmt.documents.files import FILES

DOCUMENT = "**/api/v1/documents/*"
ENGLISH = "Where can I buy a ticket?"
GERMAN = "Wo kann ich eine Fahrkarte kaufen?"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """A server of two directions that returns each text unchanged."""
    folder = tmp_path_factory.mktemp("app")
    command = (sys.executable, "-m", "tests.app.fake_server", "--port=0", "--document_mb=1")
    with running_app(folder, *command, f"--suggestions={folder / 'kept.db'}") as running:
        running.wait(200)
        yield running


@pytest.fixture
def open_page(browser: Browser, app: App) -> Iterator[OpenPage]:
    with pages_of(app, browser) as open_in_new_context:
        yield open_in_new_context


@pytest.fixture
def page(open_page: OpenPage) -> Page:
    return open_page()


def upload(page: Page, name: str, content: bytes) -> None:
    page.locator("#file summary").click()
    file = {"name": name, "mimeType": "application/octet-stream", "buffer": content}
    page.locator("#file-input").set_input_files(file)


def start(page: Page) -> None:
    page.get_by_role("button", name="Translate document").click()


def error(page: Page) -> Locator:
    return page.locator("#file-error")


def test_document_is_translated_and_downloaded(page: Page, app: App) -> None:
    upload(page, "../My letter.DOCX", FILES["a.docx"])
    with page.expect_response("**/api/v1/documents") as created:
        start(page)
    expect(page.locator("#file-status")).to_have_text("Done.")
    result = page.get_by_role("button", name="Download translation")
    expect(result).to_be_focused()
    with page.expect_download() as download:
        result.click()
    assert download.value.suggested_filename == "My letter.de.DOCX"
    content = Path(download.value.path()).read_bytes()
    (heading, paragraph) = docx.Document(io.BytesIO(content)).paragraphs
    assert (heading.text, paragraph.text) == ("The title", "one two three four.\tafter")
    assert [run.text.strip() for run in paragraph.runs if run.bold] == ["two"]
    job = created.value.json()["id"]
    assert app.get(f"/api/v1/documents/{job}").status_code == 404  # deleted


def test_document_is_canceled(page: Page, app: App) -> None:
    state = {"id": "x", "state": "translating", "sentences": 40, "done": 10, "notices": []}

    def answer(route: Any) -> None:
        if route.request.method == "GET":
            route.fulfill(json=state)
        else:
            route.fallback()

    page.route(DOCUMENT, answer)
    upload(page, "a.txt", b"One.")
    with page.expect_response("**/api/v1/documents") as created:
        start(page)
    expect(page.locator("#file-status")).to_have_text("10 of 40 sentences")
    expect(page.get_by_role("progressbar", name="Progress")).to_have_js_property("value", 10)
    with page.expect_response(lambda response: response.request.method == "DELETE") as deleted:
        page.get_by_role("button", name="Stop").click()
    assert deleted.value.status == 204
    expect(page.locator("#file-status")).to_have_text("Stopped.")
    expect(page.locator("#file-start")).to_be_enabled()
    expect(error(page)).to_be_empty()
    job = created.value.json()["id"]
    assert app.get(f"/api/v1/documents/{job}").status_code == 404


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.docx", b"damaged", "File.docx: damaged or of another format"),
        ("a.exe", b"x", "This format is unknown. Choose a file that ends with .txt, .md,"),
        ("a.txt", b"x" * 1_000_001, "The file is larger than 1 MB. Divide it."),
    ],
)
def test_bad_document_is_reported_in_one_sentence(
    page: Page, name: str, content: bytes, problem: str
) -> None:
    upload(page, name, content)
    start(page)
    expect(error(page)).to_contain_text(problem)
    expect(page.locator("#file-input")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#file-result")).to_be_hidden()
    assert serious(page) == []


def test_dropped_file_is_chosen(page: Page) -> None:
    def drop(*names: str) -> None:
        data = page.evaluate_handle(
            """([names, content]) => {
                const data = new DataTransfer();
                for (const name of names) data.items.add(new File([atob(content)], name));
                return data;
            }""",
            [names, base64.b64encode(ENGLISH.encode()).decode()],
        )
        page.dispatch_event("#source", "dragover", {"dataTransfer": data})
        expect(page.locator("body.dropping")).to_be_visible()
        page.dispatch_event("#source", "drop", {"dataTransfer": data})
        expect(page.locator("body.dropping")).to_have_count(0)

    drop("a.txt", "b.txt")
    expect(error(page)).to_contain_text("These are several files. Drop one file.")
    drop("a.txt")
    expect(error(page)).to_be_empty()
    expect(page.locator("#file")).to_have_attribute("open", "")
    start(page)
    expect(page.locator("#file-status")).to_have_text("Done.")


def test_detected_language_is_shown_and_can_be_swapped(page: Page) -> None:
    menu = page.locator("#from")
    assert menu.locator("option").all_text_contents() == ["Detect language", "English", "German"]
    expect(menu).to_have_value("en")
    menu.select_option("auto")
    page.locator("#to").select_option("de")
    expect(page.locator("#offer")).to_have_text("This server translates English to German.")
    detected = page.locator("#detected")
    source(page).fill(GERMAN)
    expect(detected).to_have_text("Detected language: German. Choose another target language.")
    source(page).fill(ENGLISH)
    expect(detected).to_have_text("Detected language: English.")
    expect(target(page)).to_have_text(ENGLISH)
    expect(source(page)).to_have_attribute("lang", "en")
    assert serious(page) == []
    upload(page, "a.txt", ENGLISH.encode())
    start(page)
    expect(page.locator("#file-status")).to_have_text("Done. Detected language: English.")
    page.locator("#swap").click()
    expect(menu).to_have_value("de")
    expect(page.locator("#to")).to_have_value("en")
    expect(detected).to_be_empty()


def test_glossary_applies_to_text_and_documents(page: Page) -> None:
    def choose(content: bytes) -> None:
        file = {"name": "terms.tsv", "mimeType": "text/plain", "buffer": content}
        page.locator("#glossary-input").set_input_files(file)

    source(page).fill(ENGLISH)
    page.locator("#options summary").click()
    choose(b"ticket\tFahrschein\nticket\tKarte")
    expect(page.locator("#source-error")).to_contain_text("Glossary: line 2: ticket: has the")
    choose(b"\xff")
    expect(page.locator("#glossary-error")).to_contain_text("The glossary is not UTF-8 text.")
    choose(b"ticket\tFahrschein")
    expect(page.locator("#glossary-status")).to_have_text("Glossary: terms.tsv")
    expect(target(page)).to_have_text("Where can I buy a Fahrschein?")
    upload(page, "a.txt", ENGLISH.encode())
    start(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download translation").click()
    assert Path(download.value.path()).read_text() == "Where can I buy a Fahrschein?"
    page.get_by_role("button", name="Remove glossary").click()
    expect(target(page)).to_have_text(ENGLISH)
    with page.expect_request("**/api/v1/translate") as request:
        page.get_by_label("Keep URLs").check()
    assert request.value.post_data_json["protect"] is True
    assert "glossary" not in request.value.post_data_json


def test_notices_about_text_and_documents_are_shown(page: Page) -> None:
    notice = "{name}: lost by the model; translated in parts: See {name}."

    def add_notice(route: Any) -> None:
        if route.request.method == "DELETE":
            route.fallback()
        else:
            route.fulfill(json={**route.fetch().json(), "notices": [notice]})

    for address in (TRANSLATE, DOCUMENT):
        page.route(address, add_notice)
    source(page).fill("See {name}.")
    expect(page.locator("#note")).to_have_text(notice)
    upload(page, "a.txt", b"See {name}.")
    start(page)
    expect(page.get_by_role("list", name="Parts to check").locator("li")).to_have_text([notice])
    assert serious(page) == []


def test_suggestion_has_the_detected_language(page: Page) -> None:
    page.locator("#from").select_option("auto")
    page.locator("#to").select_option("de")
    source(page).fill(ENGLISH)
    expect(target(page)).to_have_text(ENGLISH)
    page.locator("#suggestion summary").click()
    page.get_by_role("textbox", name="Better translation").fill(GERMAN)
    page.get_by_role("button", name="Send suggestion").click()
    expect(page.locator("#suggestion-status")).to_contain_text("Thank you.")
