"""The web page of the application in headless Chromium."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, Route, expect

from tests.system.conftest import StartApp, wait_until
from tfnmt.data.corpora.toy import grammar

SENTENCES = [source for source, _ in islice(grammar.pairs("test"), 4)]
TRANSLATE = "**/api/v1/translate"
ALIGN = "**/api/v1/align"
MARKUP = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"
SERIOUS = ("serious", "critical")

OpenPage = Callable[..., Page]


@contextmanager
def pages_of(app: Any, browser: Browser) -> Iterator[OpenPage]:
    """Open pages of an application; at the end, check for errors and requests to other sites."""
    problems: list[str] = []
    contexts = []

    def check_message(message: Any) -> None:
        # The browser logs error responses, which some tests provoke.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            problems.append(message.text)

    def check_request(request: Any) -> None:
        if urlsplit(request.url).scheme in ("http", "https") and not request.url.startswith(
            app.url
        ):
            problems.append(f"request to {request.url}")

    def open_in_new_context(path: str = "/", **options: Any) -> Page:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", check_message)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", check_request)
        page.goto(app.url + path)
        if path == "/":
            expect(page.locator("#model")).not_to_be_empty()
        return page

    yield open_in_new_context
    for context in contexts:
        context.close()
    assert problems == []


@pytest.fixture
def open_page(browser: Browser, app: Any) -> Iterator[OpenPage]:
    """Open pages of the application with the tiny model."""
    with pages_of(app, browser) as open_in_new_context:
        yield open_in_new_context


@pytest.fixture
def page(open_page: OpenPage) -> Page:
    return open_page()


def source(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Text to translate")


def target(page: Page) -> Locator:
    return page.locator("#target")


def words(page: Page) -> Locator:
    """Words with source words."""
    return page.locator("#target [tabindex]")


def request_body(route: Route) -> dict[str, Any]:
    return json.loads(route.request.post_data)


def translation_response(text: str, *others: str) -> dict[str, Any]:
    alternatives = [{"text": other, "score": -1.0} for other in others]
    translation = {"text": text, "score": -0.5, "truncated": False, "alternatives": alternatives}
    return {"translations": [translation], "model": {"name": "toy", "version": "1"}, "took_ms": 1}


def mock_translations(page: Page, reply: Callable[[dict[str, Any]], dict[str, Any]]) -> list[Any]:
    """Answer translation requests instead of the server; return the list of their bodies."""
    bodies: list[Any] = []

    def handle(route: Route) -> None:
        bodies.append(request_body(route))
        route.fulfill(json=reply(bodies[-1]))

    page.route(TRANSLATE, handle)
    page.route(ALIGN, lambda route: route.fulfill(json={"pairs": []}))
    return bodies


def hold(page: Page, field: str, value: Any) -> list[Route]:
    """Hold back translation requests with this value of a field; return the list of them."""
    held: list[Route] = []

    def handle(route: Route) -> None:
        if request_body(route)[field] == value:
            held.append(route)
        else:
            route.fallback()

    page.route(TRANSLATE, handle)
    return held


def wait_for_first(page: Page, held: list[Route]) -> Route:
    """Wait until a request is held back and return it."""

    def arrived() -> bool:
        page.wait_for_timeout(20)  # lets Playwright process the browser's events
        return bool(held)

    wait_until(arrived)
    return held[0]


# Translation.


def test_text_is_translated_while_typing(page: Page, app: Any) -> None:
    expected = app.translate(SENTENCES[0], alternatives=4)[0]
    source(page).press_sequentially(SENTENCES[0])
    expect(words(page).first).to_be_visible()
    expect(target(page)).to_have_text(expected["text"])
    expect(page.locator("#score")).to_have_text(f"Ranking score {expected['score']:.2f}")
    expect(page.locator("#count")).to_have_text(f"{len(SENTENCES[0])} / 5,000")


def test_greedy_result_is_shown_first_then_beam_result_after_a_pause(page: Page) -> None:
    bodies = mock_translations(page, lambda request: translation_response(request["mode"]))
    held = hold(page, "mode", "beam")
    source(page).press_sequentially("one two three")
    expect(target(page)).to_have_text("greedy")
    wait_for_first(page, held).fallback()
    expect(target(page)).to_have_text("beam")
    assert len(held) == 1
    assert bodies[-1]["text"] == "one two three"
    assert bodies[-1]["alternatives"] == 4


def test_outdated_response_is_dropped(page: Page) -> None:
    mock_translations(page, lambda request: translation_response(f"{request['text']}!"))
    held = hold(page, "text", "old")
    with page.expect_event("requestfailed") as aborted:
        source(page).fill("old")
        wait_for_first(page, held)
        source(page).fill("new")
    assert json.loads(aborted.value.post_data)["text"] == "old"
    expect(target(page)).to_have_text("new!")
    for route in held:
        route.fulfill(json=translation_response("old!"))
    page.wait_for_timeout(300)
    expect(target(page)).to_have_text("new!")


def test_no_request_is_sent_while_an_input_method_composes(page: Page) -> None:
    bodies = mock_translations(page, lambda request: translation_response(request["text"]))
    field = source(page)
    field.dispatch_event("compositionstart")
    field.press_sequentially("にほ")
    page.wait_for_timeout(1000)
    assert bodies == []
    field.dispatch_event("compositionend")
    expect(target(page)).to_have_text("にほ")


def test_no_request_is_sent_before_the_models_are_loaded(page: Page) -> None:
    page.route("**/api/v1/models", lambda route: route.fulfill(status=503, json=error_body("soon")))
    page.reload()
    bodies = mock_translations(page, lambda request: translation_response("there"))
    source(page).fill("text")
    source(page).press("Control+Enter")
    page.wait_for_timeout(800)
    assert bodies == []
    page.locator("#file summary").click()
    expect(page.locator("#file-start")).to_be_disabled()
    expect(page.locator("#source-error")).to_be_empty()
    page.unroute("**/api/v1/models")
    expect(target(page)).to_have_text("there")


def test_ctrl_enter_translates_immediately(page: Page) -> None:
    bodies = mock_translations(page, lambda request: translation_response(request["mode"]))
    source(page).fill("text")
    source(page).press("Control+Enter")
    expect(target(page)).to_have_text("beam")
    assert source(page).input_value() == "text"
    assert bodies[-1]["mode"] == "beam"


def test_long_text_is_translated_only_after_a_pause(page: Page) -> None:
    bodies = mock_translations(page, lambda request: translation_response(request["mode"]))
    source(page).fill("a" * 501)
    expect(target(page)).to_have_text("beam")
    assert [request["mode"] for request in bodies] == ["beam"]


def test_final_translation_is_announced_to_screen_readers(page: Page) -> None:
    mock_translations(page, lambda request: translation_response(request["mode"]))
    source(page).fill("text")
    heard = page.locator("#spoken")
    expect(heard).to_have_text("beam")
    assert (heard.get_attribute("role"), heard.get_attribute("lang")) == ("status", "de")
    page.locator("#clear").click()
    expect(heard).to_be_empty()


def test_line_breaks_and_white_space_are_shown(page: Page, app: Any) -> None:
    text = f"{SENTENCES[0]}\n\n   {SENTENCES[1]}"
    expected = app.translate(text)[0]["text"]
    source(page).fill(text)
    expect(words(page).first).to_be_visible()
    expect(target(page)).to_have_js_property("textContent", expected)
    assert target(page).evaluate("e => getComputedStyle(e).whiteSpace").startswith("pre-wrap")


def test_copy_button_copies_the_translation(open_page: OpenPage) -> None:
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    mock_translations(page, lambda request: translation_response("Satz 😀\n  zwei"))
    source(page).fill("sentence")
    expect(target(page)).to_contain_text("Satz")
    page.locator("#copy").click()
    expect(page.locator("#status")).to_have_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == "Satz 😀\n  zwei"


def test_clear_button_removes_text_and_results(page: Page) -> None:
    source(page).fill(SENTENCES[0])
    expect(words(page).first).to_be_visible()
    page.locator("#clear").click()
    expect(target(page)).to_be_empty()
    expect(page.locator("#alternatives")).to_be_hidden()
    expect(source(page)).to_be_focused()


def test_outdated_translation_is_labeled_and_not_copied(page: Page) -> None:
    mock_translations(page, lambda request: translation_response("old"))
    source(page).fill("text")
    expect(page.locator("#spoken")).to_have_text("old")
    stale, copy = page.locator("#stale"), page.locator("#copy")
    expect(stale).to_be_empty()
    expect(copy).to_be_enabled()
    source(page).fill("a" * 5001)
    expect(stale).to_have_text("This translation belongs to an earlier text.")
    expect(copy).to_be_disabled()
    assert color(target(page)) != color(source(page))
    source(page).fill("text")
    expect(stale).to_be_empty()
    expect(copy).to_be_enabled()
    page.route(TRANSLATE, lambda route: route.fulfill(status=429, json=error_body("too much")))
    source(page).fill("texts")
    expect(stale).not_to_be_empty()
    expect(copy).to_be_disabled()


def test_greedy_translation_stays_current_if_beam_search_fails(page: Page) -> None:
    mock_translations(page, lambda request: translation_response(request["mode"]))
    held = hold(page, "mode", "beam")
    source(page).fill("text")
    wait_for_first(page, held).fulfill(status=500, json=error_body("it broke"))
    expect(page.locator("#source-error")).to_contain_text("It broke.")
    expect(target(page)).to_have_text("greedy")
    expect(page.locator("#stale")).to_be_empty()
    expect(page.locator("#copy")).to_be_enabled()


def color(element: Locator) -> str:
    return element.evaluate("e => getComputedStyle(e).color")


def test_slow_first_translation_is_announced(page: Page) -> None:
    mock_translations(page, lambda request: translation_response(request["mode"]))
    held = hold(page, "mode", "greedy")
    source(page).fill("a" * 100)
    status = page.locator("#status")
    expect(status).to_have_text("Translating…")
    wait_for_first(page, held)
    expect(target(page)).to_have_text("beam")
    expect(status).to_be_empty()


def test_long_text_leaves_count_and_buttons_in_view(open_page: OpenPage) -> None:
    page = open_page(viewport={"width": 1200, "height": 700})
    mock_translations(page, lambda request: translation_response(request["text"]))
    line = f"{'word ' * 23}\n"
    source(page).fill(line * 40)
    expect(page.locator("#copy")).to_be_enabled()
    for name in ("#source-hint", "#count", "#copy"):
        expect(page.locator(name)).to_be_in_viewport()
    source(page).fill(line * 45)
    expect(page.locator("#source-error")).to_be_in_viewport()
    editor = page.locator(".editor")
    assert editor.evaluate("e => e.scrollHeight > e.clientHeight")
    editor.evaluate("e => e.scrollTo(0, 0)")
    source(page).press("Control+End")
    page.keyboard.type("x")  # the caret stays in view
    page.wait_for_timeout(100)
    assert editor.evaluate("e => e.scrollTop + e.clientHeight > e.scrollHeight - 60")


def test_clear_and_swap_can_be_undone(open_page: OpenPage) -> None:
    page = open_page()
    mock_both_directions(page)
    source(page).fill("text")
    expect(page.locator("#spoken")).to_have_text("to de")
    page.locator("#swap").click()
    expect(source(page)).to_have_value("to de")
    page.locator("#clear").click()
    expect(source(page)).to_have_value("")
    for text in ("to de", "text"):
        page.keyboard.press("Control+z")
        expect(source(page)).to_have_value(text)


def test_reload_keeps_text_and_languages(open_page: OpenPage) -> None:
    page = open_page()
    mock_both_directions(page)
    page.locator("#from").select_option("de")
    source(page).fill("ein Text")
    expect(page).to_have_url(re.compile("source=de&target=en"))
    page.reload()
    expect(source(page)).to_have_value("ein Text")
    expect(page.locator("#from")).to_have_value("de")
    expect(target(page)).to_have_text("to en")


def test_example_of_the_source_language_is_translated(page: Page) -> None:
    bodies = mock_translations(page, lambda request: translation_response("there"))
    expect(page.locator("#offer")).to_have_text("This server translates English to German.")
    assert serious(page) == []
    example = page.locator("#examples button").first
    text = example.text_content()
    example.click()
    expect(target(page)).to_have_text("there")
    assert bodies[-1]["text"] == text
    expect(page.locator("#intro")).to_be_hidden()
    page.locator("#clear").click()
    expect(example).to_be_visible()


def test_better_translation_is_suggested(page: Page) -> None:
    def accept_suggestions(route: Route) -> None:
        models = route.fetch().json()
        models["limits"]["suggestion_days"] = 90
        route.fulfill(json=models)

    sent = []

    def keep(route: Route) -> None:
        sent.append(request_body(route))
        route.fulfill(json={"success": True})

    expect(page.locator("#suggestion")).to_be_hidden()
    page.route("**/api/v1/models", accept_suggestions)
    page.route("**/api/v1/suggestions", keep)
    page.reload()
    mock_translations(page, lambda request: translation_response(request["text"].upper()))
    page.locator("#suggestion summary").click()
    expect(page.locator("#suggestion-empty")).to_be_visible()
    source(page).fill("one")
    field = page.get_by_role("textbox", name="Better translation")
    expect(page.locator("#suggestion-hint")).to_contain_text("90 days")
    expect(field).to_have_value("ONE")
    button = page.get_by_role("button", name="Send suggestion")
    expect(button).to_be_disabled()
    field.fill("eins")
    assert serious(page) == []
    button.click()
    expect(page.locator("#suggestion-status")).to_contain_text("Thank you.")
    expect(button).to_be_disabled()
    languages = {"source": "en", "target": "de"}
    assert sent == [{"text": "one", "translation": "ONE", "correction": "eins", **languages}]
    source(page).fill("two")
    expect(field).to_have_value("TWO")


def test_history_is_kept_until_it_is_cleared(page: Page) -> None:
    mock_translations(page, lambda request: translation_response(request["text"].upper()))
    for text in ("one", "one two", "three"):
        source(page).fill(text)
        expect(page.locator("#spoken")).to_have_text(text.upper())
    page.reload()
    page.locator("#history summary").click()
    entries = page.locator("#history-entries button")
    expect(entries).to_have_text(["threeTHREE", "one twoONE TWO"])
    entries.nth(1).click()
    expect(source(page)).to_have_value("one two")
    page.locator("#history-clear").click()
    expect(page.locator("#history")).to_be_hidden()
    assert page.evaluate("localStorage.getItem('history')") == "[]"


def test_swap_is_disabled_without_a_model_for_the_opposite_direction(page: Page) -> None:
    expect(page.locator("#swap")).to_be_disabled()
    assert page.locator("#from option").all_text_contents() == ["English"]
    assert page.locator("#to option").all_text_contents() == ["German"]


def test_swap_exchanges_languages_and_texts(open_page: OpenPage) -> None:
    page = open_page()
    bodies = mock_both_directions(page)
    source(page).fill("text")
    expect(target(page)).to_have_text("to de")
    page.locator("#swap").click()
    expect(target(page)).to_have_text("to en")
    expect(source(page)).to_have_value("to de")
    assert (bodies[-1]["source"], bodies[-1]["target"]) == ("de", "en")
    expect(page.locator("#model")).to_contain_text("back")


def mock_both_directions(page: Page) -> list[Any]:
    """Add a model for the opposite direction and answer the requests for both."""
    models = page.evaluate("fetch('/api/v1/models').then((answer) => answer.json())")
    models["models"].append({**models["models"][0], "name": "back", "source": "de", "target": "en"})
    page.route("**/api/v1/models", lambda route: route.fulfill(json=models))
    page.reload()
    return mock_translations(page, lambda request: translation_response(f"to {request['target']}"))


def test_swap_keeps_a_text_without_a_current_translation(
    page: Page,
) -> None:
    mock_both_directions(page)
    source(page).fill("text")
    expect(page.locator("#spoken")).to_have_text("to de")
    held = hold(page, "text", "another text")
    source(page).fill("another text")
    wait_for_first(page, held)
    page.locator("#swap").click()
    expect(page.locator("#from")).to_have_value("de")
    expect(source(page)).to_have_value("another text")


def test_languages_of_a_model_of_two_directions_select_its_target(
    browser: Browser, start_app: StartApp, two_way_litert: Path
) -> None:
    with start_app(f"--model=toy={two_way_litert}") as app:
        app.wait(200)
        with pages_of(app, browser) as open_page:
            page = open_page()
            languages = ["Detect language", "English", "German"]
            assert page.locator("#from option").all_text_contents() == languages
            with page.expect_response(ALIGN) as german:
                source(page).fill("The dog")
            page.locator("#swap").click()
            with page.expect_response(ALIGN) as english:
                source(page).fill("Der Hund")
            assert page.locator("#to option").all_text_contents() == ["English"]
            for response, token in (german, "<2de>"), (english, "<2en>"):
                (pair,) = response.value.json()["pairs"]
                assert pair["source"][0]["text"] == token


# Alternatives.


def test_alternatives_are_selected_by_keyboard_and_click(page: Page) -> None:
    mock_translations(
        page, lambda request: translation_response("best one", "second one", "third one")
    )
    source(page).fill("text")
    choices = page.locator("#choices[role=listbox]")
    expect(choices.get_by_role("option")).to_have_count(3)
    choices.focus()
    page.keyboard.press("ArrowDown")
    expect(target(page)).to_have_text("second one")
    page.keyboard.press("End")
    expect(target(page)).to_have_text("third one")
    expect(choices.get_by_role("option", selected=True)).to_contain_text("third one")
    assert choices.get_attribute("aria-activedescendant") == "choice-2"
    page.keyboard.press("Home")
    expect(target(page)).to_have_text("best one")
    choices.get_by_role("option").nth(1).click()
    expect(target(page)).to_have_text("second one")


def test_only_changed_words_of_an_alternative_are_marked(page: Page) -> None:
    mock_translations(
        page, lambda request: translation_response("a man and a dog", "a dog and a man sleep")
    )
    source(page).fill("text")
    options = page.locator("#choices").get_by_role("option")
    expect(options.nth(0).locator(".changed")).to_have_count(0)
    changed = options.nth(1).locator(".changed")
    expect(changed).to_have_text(["dog", "man", "sleep"])
    expect(options.nth(1)).to_contain_text("ranking score -1.00")


def test_alternatives_of_a_real_model_are_shown(page: Page, app: Any) -> None:
    (best,) = app.translate(SENTENCES[1], alternatives=4)
    source(page).fill(SENTENCES[1])
    expect(words(page).first).to_be_visible()
    options = page.get_by_role("option").locator(".choice")
    if best["alternatives"]:
        texts = [best["text"], *(other["text"] for other in best["alternatives"])]
        assert options.all_text_contents() == texts
    else:
        expect(page.locator("#alternatives")).to_be_hidden()


# Words.


ALIGNED_PAIR = {
    "source": [
        {"text": "▁red", "start": 0, "end": 3},
        {"text": "▁😀", "start": 4, "end": 5},
        {"text": "▁cat", "start": 6, "end": 9},
        {"text": "</s>", "start": 9, "end": 9},
    ],
    "target": [
        {"text": "▁rote", "start": 0, "end": 4, "log_prob": -0.1},
        {"text": "▁Kat", "start": 5, "end": 8, "log_prob": -0.1},
        {"text": "ze", "start": 8, "end": 10, "log_prob": -2.0},
        {"text": "</s>", "start": 10, "end": 10, "log_prob": -0.1},
    ],
    "attention": [
        [0.9, 0.0, 0.1, 0.0],
        [0.0, 0.1, 0.8, 0.1],
        [0.0, 0.1, 0.7, 0.2],
        [0, 0, 0, 1],
    ],
}
ALIGNED = {"pairs": [ALIGNED_PAIR]}


@pytest.fixture
def cat(page: Page) -> Page:
    """A page with an aligned translation."""
    mock_translations(page, lambda request: translation_response("rote Katze"))
    page.unroute(ALIGN)
    page.route(ALIGN, lambda route: route.fulfill(json=ALIGNED))
    source(page).fill("red 😀 cat")
    expect(words(page)).to_have_count(2)
    return page


def test_hovered_word_highlights_its_source_words(cat: Page) -> None:
    words(cat).nth(1).hover()
    expect(cat.locator("mark")).to_have_text(["cat"])
    expect(cat.locator("#word")).to_have_text("“Katze” from “cat” · word score 0.14")
    words(cat).nth(0).hover()
    expect(cat.locator("mark")).to_have_text(["red"])
    cat.locator("h1").hover()
    expect(cat.locator("mark")).to_have_count(0)


def test_words_lose_their_source_words_when_the_text_changes(cat: Page) -> None:
    cat.unroute(TRANSLATE)
    cat.route(TRANSLATE, lambda route: route.fulfill(status=500, json=error_body("it broke")))
    expect(words(cat).first).to_be_visible()
    text = target(cat).text_content()
    source(cat).press_sequentially("s")
    expect(words(cat)).to_have_count(0)
    expect(target(cat)).to_have_text(text)


def test_words_are_focused_by_keyboard(cat: Page) -> None:
    words(cat).first.focus()
    expect(cat.locator("mark")).to_have_text(["red"])
    cat.keyboard.press("ArrowRight")
    expect(words(cat).nth(1)).to_be_focused()
    expect(cat.locator("mark")).to_have_text(["cat"])
    cat.keyboard.press("Home")
    expect(cat.locator("mark")).to_have_text(["red"])
    assert cat.locator("#target [tabindex='0']").count() == 1


def test_low_score_words_differ_by_more_than_color(cat: Page) -> None:
    expect(cat.locator("#target .doubtful")).to_have_text(["Katze"])
    line = "e => getComputedStyle(e).textDecorationStyle"
    assert cat.locator("#target .doubtful").evaluate(line) == "dotted"
    assert "probab" not in cat.locator("body").inner_text().lower()


def test_highlights_are_aligned_with_the_text_field(cat: Page) -> None:
    words(cat).nth(1).hover()
    sizes = "([a, b]) => [a.scrollHeight - b.scrollHeight, a.offsetWidth - b.offsetWidth]"
    both = [cat.locator("#echo").element_handle(), source(cat).element_handle()]
    assert cat.evaluate(sizes, both) == [0, 0]


def test_warning_for_sentence_longer_than_training_data(page: Page) -> None:
    many = [{"text": "▁a", "start": 0, "end": 1}] * 50
    row = [1.0] + [0.0] * 49
    one = {"text": "▁b", "start": 0, "end": 1, "log_prob": -0.1}
    mock_translations(page, lambda request: translation_response("b"))
    page.unroute(ALIGN)
    pairs = [{"source": many, "target": [one], "attention": [row]}]
    page.route(ALIGN, lambda route: route.fulfill(json={"pairs": pairs}))
    source(page).fill("a")
    expect(page.locator("#note")).to_contain_text(re.compile("50 tokens.*40"))


# Attention.


def test_attention_view_works_by_keyboard_only(page: Page) -> None:
    source(page).fill(SENTENCES[0])
    expect(words(page).first).to_be_visible()
    page.locator("#attention summary").focus()
    page.keyboard.press("Enter")
    heads = page.locator("#heads[role=group]").get_by_role("button")
    expect(heads).to_have_text(["Average", "Head 1", "Head 2"])
    expect(page.get_by_role("grid", name="cross attention, layer 1, average")).to_be_visible()
    heads.nth(2).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("grid", name="cross attention, layer 1, head 2")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("group", name="Attention as lines")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator("#cell")).to_have_text(re.compile("“.*” .* “.*”: [01][.][0-9]{3}"))
    first = page.locator("#cell").text_content()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#cell")).not_to_have_text(first)
    page.keyboard.press("End")
    expect(page.locator("#cell")).to_contain_text("“</s>”:")
    page.locator("#kind").select_option("encoder")
    expect(page.get_by_role("grid", name="encoder attention")).to_be_visible()


def test_attention_view_has_axes_legend_and_lines(page: Page) -> None:
    source(page).fill(SENTENCES[0])
    expect(words(page).first).to_be_visible()
    page.locator("#attention summary").click()
    expect(page.locator("#map .axis")).to_have_text(["Text (attended to)", "Translation (attends)"])
    expect(page.locator(".legend")).to_have_text("Attention weight: 0 1")
    lines = page.get_by_role("img", name=re.compile("^cross attention, layer 1, average"))
    tokens = page.locator("#map th[scope=col], #map th[scope=row]").all_text_contents()
    assert sorted(lines.locator("text:not(.axis)").all_text_contents()) == sorted(tokens)
    assert lines.locator(".axis").all_text_contents() == ["text", "translation"]
    assert lines.locator("path").count() >= lines.locator("g").count()
    page.locator("#kind").select_option("encoder")
    expect(page.locator("#map .axis")).to_have_text(["Text (attended to)", "Text (attends)"])


def test_attention_view_selects_a_sentence(page: Page) -> None:
    source(page).fill(f"{SENTENCES[0]}\n{SENTENCES[1]}")
    expect(words(page).first).to_be_visible()
    page.locator("#attention summary").click()
    expect(page.locator("#sentence option")).to_have_count(2)
    page.locator("#sentence").select_option("1")
    letters = page.locator("#map thead th[scope=col]").first
    expect(letters).to_have_text(SENTENCES[1][: len(letters.text_content())])


def test_attention_is_downloaded_as_svg(page: Page) -> None:
    source(page).fill(SENTENCES[0])
    expect(words(page).first).to_be_visible()
    page.locator("#attention summary").click()
    expect(page.locator("#map td").nth(1)).to_be_visible()
    with page.expect_download() as download:
        page.locator("#download-svg").click()
    assert download.value.suggested_filename == "attention-cross-1-average.svg"
    picture = Path(download.value.path()).read_text(encoding="utf-8")
    assert picture.startswith("<svg")
    assert "cross attention, layer 1, average" in picture
    assert "rows: translation, columns: text" in picture
    assert page.locator("#map tbody td").count() == picture.count('class="value"')


def test_failed_attention_request_removes_previous_weights(page: Page) -> None:
    source(page).fill(SENTENCES[0])
    expect(words(page).first).to_be_visible()
    page.locator("#attention summary").click()
    expect(page.locator("#map td").first).to_be_visible()
    page.route(
        "**/api/v1/attention", lambda route: route.fulfill(status=500, json=error_body("it broke"))
    )
    page.locator("#kind").select_option("encoder")
    expect(page.locator("#attention-error")).to_contain_text("It broke.")
    expect(page.locator("#map")).to_be_empty()
    expect(page.locator("#heads")).to_be_empty()


def test_failed_alignment_hides_attention_of_previous_text(
    page: Page,
) -> None:
    source(page).fill(SENTENCES[0])
    expect(words(page).first).to_be_visible()
    page.locator("#attention summary").click()
    expect(page.locator("#map td").first).to_be_visible()
    page.route("**/api/v1/align", lambda route: route.fulfill(status=503, json=error_body("busy")))
    source(page).fill(SENTENCES[1])
    expect(page.locator("#attention-empty")).to_be_visible()
    expect(page.locator("#attention-view")).to_be_hidden()


# Tables. The other documents are in test_app_documents.py.


def upload(page: Page, name: str, content: bytes) -> None:
    if not page.locator("#file-input").is_visible():
        page.locator("#file summary").click()
    file = {"name": name, "mimeType": "text/plain", "buffer": content}
    page.locator("#file-input").set_input_files(file)


def downloaded(page: Page) -> tuple[str, str]:
    with page.expect_download() as download:
        page.locator("#file-result").click()
    path = Path(download.value.path())
    return download.value.suggested_filename, path.read_bytes().decode()


def last_column(table: str) -> list[str]:
    return [line.split("\t")[-1] for line in table.split("\n")]


def test_table_is_translated_in_batches(page: Page) -> None:
    translated = mock_uppercase(page)
    lines = [f"line {number}" for number in range(70)]
    upload(page, "../lines.tsv", "\r\n".join([*lines, ""]).encode())
    page.locator("#file-start").click()
    expect(page.locator("#file-status")).to_have_text("Done.")
    name, content = downloaded(page)
    assert name == "lines.de.tsv"
    assert content == "\r\n".join([*(f"{line}\t{line.upper()}" for line in lines), ""])
    assert max(map(len, translated)) == 32


def mock_uppercase(page: Page) -> list[list[str]]:
    """Translate texts to upper case instead of the server; return the list of requested texts."""
    requested: list[list[str]] = []

    def handle(route: Route) -> None:
        texts = request_body(route)["text"]
        requested.append(texts)
        upper = [text.upper().replace("|", "\t") for text in texts]
        translations = [translation_response(text)["translations"][0] for text in upper]
        route.fulfill(json={**translation_response(""), "translations": translations})

    page.route(TRANSLATE, handle)
    return requested


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("1\tone\n2\ttwo", "1\tone\tONE\n2\ttwo\tTWO"),
        ("1\tone\n2\ttwo\n", "1\tone\tONE\n2\ttwo\tTWO\n"),
        ("1\tone\n\n2\ttwo\n", "1\tone\tONE\n\n2\ttwo\tTWO\n"),
        ("1\tone\n\t\n2\ttwo\n", "1\tone\tONE\n\t\t\n2\ttwo\tTWO\n"),
        ("1\n2\ttwo\tx", "1\t\t\t\n2\ttwo\tx\tTWO"),
        ("1\tone|two\n", "1\tone|two\tONE TWO\n"),
        ("1\tone\n2\ttwo\r\n3\tthree", "1\tone\tONE\n2\ttwo\tTWO\r\n3\tthree\tTHREE"),
    ],
)
def test_table_gets_an_additional_column(page: Page, content: str, expected: str) -> None:
    mock_uppercase(page)
    upload(page, "table.tsv", content.encode())
    page.get_by_label("Column to translate").select_option(label="2")
    page.locator("#file-start").click()
    assert downloaded(page) == ("table.de.tsv", expected)


def test_document_after_a_table_has_no_columns(page: Page) -> None:
    upload(page, "table.tsv", b"1\tone\n2\ttwo")
    expect(page.locator("#column-label")).to_be_visible()
    upload(page, "a.txt", b"a")
    expect(page.locator("#column-label")).to_be_hidden()
    expect(page.locator("#header-label")).to_be_hidden()


def test_line_over_the_limit_is_split_after_a_sentence(page: Page) -> None:
    requested = mock_uppercase(page)
    line = f"{'a' * 3000}. {'b' * 3000} {'c' * 2500} {'d' * 5100}"
    upload(page, "lines.tsv", f"short\n{line}\nlast".encode())
    page.locator("#file-start").click()
    assert last_column(downloaded(page)[1]) == ["SHORT", line.upper(), "LAST"]
    assert max(len("".join(texts)) for texts in requested) <= 5000
    assert f"{'a' * 3000}. " in [text for texts in requested for text in texts]


def test_header_of_a_table_is_not_translated(page: Page) -> None:
    requested = mock_uppercase(page)
    upload(page, "table.tsv", b"id\ttext\n1\tone\n")
    page.get_by_label("Column to translate").select_option(label="2")
    expect(page.get_by_label("The first line is a header")).to_be_checked()
    page.locator("#file-start").click()
    assert downloaded(page)[1] == "id\ttext\ttext (de)\n1\tone\tONE\n"
    assert requested == [["one"]]


def test_failed_table_resumes_at_the_failed_batch(page: Page) -> None:
    requested = mock_uppercase(page)
    failures = iter([None, error_body("it broke")])

    def fail_once(route: Route) -> None:
        failure = next(failures, None)
        if failure:
            route.fulfill(status=500, json=failure)
        else:
            route.fallback()

    page.route(TRANSLATE, fail_once)
    lines = [f"line {number}" for number in range(70)]
    upload(page, "lines.tsv", "\n".join(lines).encode())
    page.locator("#file-start").click()
    expect(page.locator("#file-error")).to_contain_text("It broke.")
    page.locator("#file-error").get_by_role("button", name="Try again").click()
    assert last_column(downloaded(page)[1]) == [line.upper() for line in lines]
    assert [line for texts in requested for line in texts] == lines


def test_finished_table_focuses_download_unless_user_is_typing(
    page: Page,
) -> None:
    mock_uppercase(page)
    result = page.locator("#file-result")
    upload(page, "lines.tsv", b"line")
    page.locator("#file-start").click()
    expect(result).to_be_focused()
    held = hold(page, "text", ["line"])
    page.locator("#file-start").click()
    source(page).focus()
    wait_for_first(page, held).fallback()
    expect(result).to_be_visible()
    expect(source(page)).to_be_focused()


def test_table_is_translated_by_a_real_server(page: Page, app: Any) -> None:
    upload(page, "lines.tsv", "\n".join(SENTENCES).encode())
    page.locator("#file-start").click()
    _, content = downloaded(page)
    assert last_column(content) == [one["text"] for one in app.translate(SENTENCES)]


@pytest.mark.parametrize(("content", "problem"), [(b"\xff\xfe\x00", "UTF-8"), (b" \n", "empty")])
def test_invalid_table_is_reported_next_to_its_field(
    page: Page, content: bytes, problem: str
) -> None:
    upload(page, "file.tsv", content)
    expect(page.locator("#file-error")).to_contain_text(problem)


def test_table_waits_for_a_busy_server(page: Page) -> None:
    mock_translations(page, lambda request: translation_response("done"))

    def refuse(route: Route) -> None:
        route.fulfill(status=503, headers={"Retry-After": "1"}, json=error_body("busy"))

    page.route(TRANSLATE, refuse)
    upload(page, "one.tsv", b"line")
    page.locator("#file-start").click()
    expect(page.locator("#file-status")).to_contain_text(re.compile("Busy.* 1 s"))
    page.unroute(TRANSLATE, refuse)
    assert last_column(downloaded(page)[1]) == ["done"]


# Errors.


def error_body(message: str, code: str = "x") -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "request_id": "1"}}


@pytest.mark.parametrize("status", [400, 404, 413, 422, 500, 502, 504])
def test_error_is_shown_next_to_its_field_and_text_is_kept(page: Page, status: int) -> None:
    page.route(TRANSLATE, lambda route: route.fulfill(status=status, json=error_body("it broke")))
    source(page).fill("my long text")
    expect(page.locator("#source-error")).to_contain_text("It broke.")
    expect(source(page)).to_have_value("my long text")
    assert (source(page).get_attribute("aria-invalid") == "true") == (status < 500)
    assert page.locator("#source-error").get_attribute("role") == "alert"


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_starts_a_countdown(page: Page, status: int) -> None:
    page.route(
        TRANSLATE,
        lambda route: route.fulfill(
            status=status, headers={"Retry-After": "2"}, json=error_body("too much")
        ),
    )
    source(page).fill("text")
    expect(page.locator("#source-error")).to_contain_text("in 2 s")
    expect(page.locator("#source-error")).to_contain_text("in 1 s")
    page.unroute(TRANSLATE)
    mock_translations(page, lambda request: translation_response("there"))
    expect(target(page)).to_have_text("there")
    expect(page.locator("#source-error")).to_be_empty()


def test_unreachable_server_is_reported_and_can_be_retried(page: Page) -> None:
    page.route(TRANSLATE, lambda route: route.abort("connectionrefused"))
    # Greedy search is requested first. After beam search has failed too, no request is running.
    with page.expect_event(
        "requestfailed", lambda request: request.post_data_json["mode"] == "beam"
    ):
        source(page).fill("text")
    expect(page.locator("#source-error")).to_contain_text("cannot be reached")
    page.unroute(TRANSLATE)
    mock_translations(page, lambda request: translation_response("there"))
    page.get_by_role("button", name="Try again").click()
    expect(target(page)).to_have_text("there")


def require_key(page: Page) -> None:
    """Translate only with the API key good-key."""

    def guarded(route: Route) -> None:
        header = route.request.headers.get("authorization")
        code = "invalid_key" if header else "unauthorized"
        if header == "Bearer good-key":
            route.fulfill(json=translation_response("there"))
        else:
            route.fulfill(status=401, json=error_body("the API key is wrong", code))

    page.route(TRANSLATE, guarded)
    page.route(ALIGN, lambda route: route.fulfill(json={"pairs": []}))


def test_api_key_is_requested_validated_and_sent(page: Page) -> None:
    require_key(page)
    key = page.get_by_label("API key")
    expect(key).to_be_hidden()
    source(page).fill("text")
    expect(page.locator("#source-error")).to_contain_text("This server requires an API key.")
    key.fill("bad-key")
    page.locator("#key button").click()
    expect(page.locator("#source-error")).to_contain_text("The API key is wrong.")
    for value, valid in (("“good-key”", False), ("good key", False), ("good-key", True)):
        key.fill(value)
        page.locator("#key button").click()
        expect(key).to_be_visible(visible=not valid)
    expect(target(page)).to_have_text("there")


BLOCK_STORAGE = """for (const name of ["sessionStorage", "localStorage"])
  Object.defineProperty(window, name, {
    get() { throw new DOMException("The request was denied.", "SecurityError"); },
  });"""


def test_page_with_blocked_storage_translates_and_keeps_the_api_key(page: Page) -> None:
    page.add_init_script(BLOCK_STORAGE)
    page.reload()
    require_key(page)
    source(page).fill("text")
    page.get_by_label("API key").fill("good-key")
    page.locator("#key button").click()
    expect(target(page)).to_have_text("there")


def test_api_key_form_takes_focus_only_if_user_is_not_typing(page: Page) -> None:
    def refuse(route: Route) -> None:
        route.fulfill(status=401, json=error_body("an API key is needed"))

    page.route(TRANSLATE, refuse)
    source(page).press_sequentially("text")
    key = page.get_by_label("API key")
    expect(key).to_be_visible()
    expect(source(page)).to_be_focused()
    page.route("**/api/v1/models", refuse)
    page.reload()
    expect(key).to_be_focused()


def test_text_over_the_limit_is_not_sent(page: Page) -> None:
    bodies = mock_translations(page, lambda request: translation_response("x"))
    source(page).fill("😀" * 5001)
    expect(page.locator("#source-error")).to_contain_text("5,001 characters; the limit is 5,000")
    expect(page.locator("#count")).to_have_text("5,001 / 5,000")
    expect(source(page)).to_have_attribute("aria-invalid", "true")
    page.wait_for_timeout(800)
    assert bodies == []
    source(page).fill("😀" * 5000)
    expect(target(page)).to_have_text("x")


# Markup.


def test_markup_is_shown_as_text(page: Page) -> None:
    mock_translations(page, lambda request: translation_response(request["text"], f"{MARKUP}2"))
    source(page).fill(MARKUP)
    expect(page.get_by_role("option")).to_have_count(2)
    expect(target(page)).to_have_js_property("textContent", MARKUP)
    assert page.locator("main img, main script").count() == 0
    assert page.title() == "Translation"


def test_markup_is_translated_by_a_real_model(page: Page, app: Any) -> None:
    expected = app.translate(MARKUP)[0]["text"]
    source(page).fill(MARKUP)
    expect(words(page).first).to_be_visible()
    expect(target(page)).to_have_js_property("textContent", expected)
    page.locator("#attention summary").click()
    expect(page.locator("#map td").nth(1)).to_be_visible()
    assert page.title() == "Translation"


# Appearance.


def test_right_to_left_text_is_displayed_right_to_left(page: Page) -> None:
    mock_translations(page, lambda request: translation_response("مرحبا بالعالم"))
    source(page).fill("שלום עולם")
    expect(target(page)).to_have_text("مرحبا بالعالم")
    for place in (source(page), target(page)):
        assert place.evaluate("e => e.matches(':dir(rtl)')")


def test_forced_colors_keep_the_marking(open_page: OpenPage) -> None:
    page = open_page(forced_colors="active")
    mock_translations(page, lambda request: translation_response("one", "two"))
    source(page).fill("text")
    chosen = page.locator("#choices").get_by_role("option", selected=True)
    assert chosen.evaluate("e => getComputedStyle(e).outlineStyle") == "solid"
    page.locator("#echo").evaluate("e => e.append(document.createElement('mark'))")
    assert page.locator("mark").evaluate("e => getComputedStyle(e).outlineStyle") == "solid"


def test_print_shows_the_whole_text_without_controls(page: Page) -> None:
    mock_translations(page, lambda request: translation_response("x\n" * 300))
    source(page).fill(f"{'word ' * 23}\n" * 40)
    expect(target(page)).to_contain_text("x")
    page.emulate_media(media="print")
    expect(source(page)).to_be_hidden()
    expect(page.locator("#copy")).to_be_hidden()
    for name in ("#echo", "#target"):
        assert page.locator(name).evaluate("e => e.scrollHeight == e.clientHeight")
    assert page.locator(".editor").evaluate("e => e.scrollHeight == e.clientHeight")


def test_page_without_scripts_says_what_it_needs(open_page: OpenPage) -> None:
    page = open_page("/?", java_script_enabled=False)
    expect(page.locator("noscript p")).to_be_visible()
    expect(page.locator("main")).to_be_hidden()


@pytest.mark.parametrize("width", [375, 320])
def test_narrow_window_has_no_horizontal_scrolling(open_page: OpenPage, width: int) -> None:
    page = open_page(viewport={"width": width, "height": 667})
    source(page).fill(f"{SENTENCES[0]}\n{'x' * 90}")
    expect(words(page).first).to_be_visible()
    for name in ("attention", "file", "options", "history"):
        page.locator(f"#{name} summary").click()
    expect(page.locator("#map td").nth(1)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 375])
def test_page_has_no_serious_accessibility_violations(
    open_page: OpenPage, scheme: str, width: int
) -> None:
    page = open_page(color_scheme=scheme, viewport={"width": width, "height": 800})
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (max(map(int, re.findall(r"\d+", paper))) < 60) == (scheme == "dark")
    source(page).fill(f"{SENTENCES[0]}\n{SENTENCES[1]}")
    expect(words(page).first).to_be_visible()
    for name in ("attention", "file", "options", "history"):
        page.locator(f"#{name} summary").click()
    expect(page.locator("#map td").nth(1)).to_be_visible()
    assert serious(page) == []
    page.route(TRANSLATE, lambda route: route.fulfill(status=422, json=error_body("it broke")))
    source(page).fill("a")
    expect(page.locator("#source-error")).not_to_be_empty()
    assert serious(page) == []


def test_documentation_has_no_serious_accessibility_violations(open_page: OpenPage) -> None:
    page = open_page("/docs")
    expect(page.get_by_role("heading", name="/api/v1/translate")).to_be_visible()
    assert serious(page) == []


def serious(page: Page) -> list[Any]:
    # Wait for color transitions.
    page.wait_for_timeout(500)
    found = Axe().run(page).response["violations"]
    return [
        (one["id"], [node["html"][:200] for node in one["nodes"]])
        for one in found
        if one["impact"] in SERIOUS
    ]
