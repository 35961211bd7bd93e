"""The web application's page in Chromium, without a window."""

import json
import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, Route, expect

from tests.system.conftest import wait_until
from tfnmt.data.corpora.toy import grammar

SENTENCES = [source for source, _ in islice(grammar.pairs("test"), 4)]
TRANSLATE = "**/api/v1/translate"
ALIGN = "**/api/v1/align"
MARKUP = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"
SERIOUS = ("serious", "critical")

Open = Callable[..., Page]


@pytest.fixture
def opened(browser: Browser, app: Any) -> Iterator[Open]:
    """Opens the page; at the end nothing may have been wrong with it, nor asked of others."""
    complaints: list[str] = []
    contexts = []

    def complain(message: Any) -> None:
        # An answer that is an error is the browser's to note, and what some tests are about.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            complaints.append(message.text)

    def watch(request: Any) -> None:
        if urlsplit(request.url).scheme in ("http", "https") and not request.url.startswith(
            app.url
        ):
            complaints.append(f"asked {request.url}")

    def open_page(path: str = "/", **options: Any) -> Page:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", complain)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", watch)
        page.goto(app.url + path)
        if path == "/":
            expect(page.locator("#model")).to_contain_text("toy")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def page(opened: Open) -> Page:
    return opened()


def source(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Text to translate")


def target(page: Page) -> Locator:
    return page.locator("#target")


def words(page: Page) -> Locator:
    """Those that tell where they come from."""
    return page.locator("#target [tabindex]")


def body(route: Route) -> dict[str, Any]:
    return json.loads(route.request.post_data)


def answer(text: str, *others: str) -> dict[str, Any]:
    alternatives = [{"text": other, "score": -1.0} for other in others]
    translation = {"text": text, "score": -0.5, "truncated": False, "alternatives": alternatives}
    return {"translations": [translation], "model": {"name": "toy", "version": "1"}, "took_ms": 1}


def translating(page: Page, reply: Callable[[dict[str, Any]], dict[str, Any]]) -> list[Any]:
    """Answers in the server's place; returns what it will have been asked."""
    asked: list[Any] = []

    def handle(route: Route) -> None:
        asked.append(body(route))
        route.fulfill(json=reply(asked[-1]))

    page.route(TRANSLATE, handle)
    page.route(ALIGN, lambda route: route.fulfill(json={"pairs": []}))
    return asked


def holding(page: Page, field: str, value: Any) -> list[Route]:
    """The translations, of those that will be asked for, that are held back."""
    held: list[Route] = []

    def handle(route: Route) -> None:
        if body(route)[field] == value:
            held.append(route)
        else:
            route.fallback()

    page.route(TRANSLATE, handle)
    return held


def first_of(page: Page, held: list[Route]) -> Route:
    """The first of what is held back, when it has come."""

    def come() -> bool:
        page.wait_for_timeout(20)  # in which the browser's events are seen
        return bool(held)

    wait_until(come)
    return held[0]


# Translating.


def test_a_text_is_translated_while_it_is_typed(page: Page, app: Any) -> None:
    expected = app.translate(SENTENCES[0], alternatives=4)[0]
    source(page).press_sequentially(SENTENCES[0])
    expect(words(page).first).to_be_visible()
    expect(target(page)).to_have_text(expected["text"])
    expect(page.locator("#score")).to_have_text(f"Model score {expected['score']:.2f}")
    expect(page.locator("#count")).to_have_text(f"{len(SENTENCES[0])} / 5,000")


def test_what_is_quick_comes_first_and_the_best_when_the_typing_pauses(page: Page) -> None:
    asked = translating(page, lambda request: answer(request["mode"]))
    held = holding(page, "mode", "beam")
    source(page).press_sequentially("one two three")
    expect(target(page)).to_have_text("greedy")
    first_of(page, held).fallback()
    expect(target(page)).to_have_text("beam")
    assert len(held) == 1
    assert asked[-1]["text"] == "one two three"
    assert asked[-1]["alternatives"] == 4


def test_an_answer_that_comes_late_is_dropped(page: Page) -> None:
    translating(page, lambda request: answer(f"{request['text']}!"))
    held = holding(page, "text", "old")
    with page.expect_event("requestfailed") as aborted:
        source(page).fill("old")
        first_of(page, held)
        source(page).fill("new")
    assert json.loads(aborted.value.post_data)["text"] == "old"
    expect(target(page)).to_have_text("new!")
    for route in held:
        route.fulfill(json=answer("old!"))
    page.wait_for_timeout(300)
    expect(target(page)).to_have_text("new!")


def test_nothing_is_asked_while_an_input_method_composes(page: Page) -> None:
    asked = translating(page, lambda request: answer(request["text"]))
    field = source(page)
    field.dispatch_event("compositionstart")
    field.press_sequentially("にほ")
    page.wait_for_timeout(1000)
    assert asked == []
    field.dispatch_event("compositionend")
    expect(target(page)).to_have_text("にほ")


def test_nothing_is_asked_before_the_models_are_known(page: Page) -> None:
    page.route("**/api/v1/models", lambda route: route.fulfill(status=503, json=problem("soon")))
    page.reload()
    asked = translating(page, lambda request: answer("there"))
    source(page).fill("text")
    source(page).press("Control+Enter")
    page.wait_for_timeout(800)
    assert asked == []
    page.get_by_text("Translate a file").click()
    expect(page.get_by_role("button", name="Translate the file")).to_be_disabled()
    expect(page.locator("#source-error")).to_be_empty()
    page.unroute("**/api/v1/models")
    expect(target(page)).to_have_text("there")


def test_control_and_enter_translate_at_once(page: Page) -> None:
    asked = translating(page, lambda request: answer(request["mode"]))
    source(page).fill("text")
    source(page).press("Control+Enter")
    expect(target(page)).to_have_text("beam")
    assert source(page).input_value() == "text"
    assert asked[-1]["mode"] == "beam"


def test_a_long_text_is_asked_for_when_the_typing_pauses_only(page: Page) -> None:
    asked = translating(page, lambda request: answer(request["mode"]))
    source(page).fill("a" * 501)
    expect(target(page)).to_have_text("beam")
    assert [request["mode"] for request in asked] == ["beam"]


def test_a_translation_that_is_to_stay_is_there_to_be_heard(page: Page) -> None:
    translating(page, lambda request: answer(request["mode"]))
    source(page).fill("text")
    heard = page.locator("#spoken")
    expect(heard).to_have_text("beam")
    assert (heard.get_attribute("role"), heard.get_attribute("lang")) == ("status", "de")
    page.get_by_role("button", name="Clear the text").click()
    expect(heard).to_be_empty()


def test_lines_and_white_space_are_shown_as_they_are(page: Page, app: Any) -> None:
    text = f"{SENTENCES[0]}\n\n   {SENTENCES[1]}"
    expected = app.translate(text)[0]["text"]
    source(page).fill(text)
    expect(words(page).first).to_be_visible()
    expect(target(page)).to_have_js_property("textContent", expected)
    assert target(page).evaluate("e => getComputedStyle(e).whiteSpace").startswith("pre-wrap")


def test_the_translation_is_copied(opened: Open) -> None:
    page = opened(permissions=["clipboard-read", "clipboard-write"])
    translating(page, lambda request: answer("Satz 😀\n  zwei"))
    source(page).fill("sentence")
    expect(target(page)).to_contain_text("Satz")
    page.get_by_role("button", name="Copy the translation").click()
    expect(page.locator("#status")).to_have_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == "Satz 😀\n  zwei"


def test_clearing_leaves_nothing(page: Page) -> None:
    source(page).fill(SENTENCES[0])
    expect(words(page).first).to_be_visible()
    page.get_by_role("button", name="Clear the text").click()
    expect(target(page)).to_be_empty()
    expect(page.locator("#alternatives")).to_be_hidden()
    expect(source(page)).to_be_focused()


def test_there_is_no_way_back_without_a_model_for_it(page: Page) -> None:
    expect(page.get_by_role("button", name="Swap the languages")).to_be_disabled()
    assert page.locator("#from option").all_text_contents() == ["English"]
    assert page.locator("#to option").all_text_contents() == ["German"]


def test_languages_and_texts_change_places_where_both_models_are(opened: Open) -> None:
    page = opened()
    asked = translating_both_ways(page)
    source(page).fill("text")
    expect(target(page)).to_have_text("to de")
    page.get_by_role("button", name="Swap the languages").click()
    expect(target(page)).to_have_text("to en")
    expect(source(page)).to_have_value("to de")
    assert (asked[-1]["source"], asked[-1]["target"]) == ("de", "en")
    expect(page.locator("#model")).to_contain_text("back")


def translating_both_ways(page: Page) -> list[Any]:
    """Adds a model for the way back, and answers for both."""
    models = page.evaluate("fetch('/api/v1/models').then((answer) => answer.json())")
    models["models"].append({**models["models"][0], "name": "back", "source": "de", "target": "en"})
    page.route("**/api/v1/models", lambda route: route.fulfill(json=models))
    page.reload()
    return translating(page, lambda request: answer(f"to {request['target']}"))


def test_a_text_that_is_not_translated_yet_stays_when_the_languages_change_places(
    page: Page,
) -> None:
    translating_both_ways(page)
    source(page).fill("text")
    expect(page.locator("#spoken")).to_have_text("to de")
    held = holding(page, "text", "another text")
    source(page).fill("another text")
    first_of(page, held)
    page.get_by_role("button", name="Swap the languages").click()
    expect(page.locator("#from")).to_have_value("de")
    expect(source(page)).to_have_value("another text")


# Alternatives.


def test_alternatives_are_chosen_by_keyboard_and_by_click(page: Page) -> None:
    translating(page, lambda request: answer("best one", "second one", "third one"))
    source(page).fill("text")
    choices = page.get_by_role("listbox", name="Alternatives")
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


def test_alternatives_of_a_real_model_are_there(page: Page, app: Any) -> None:
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


ALIGNED = {
    "pairs": [
        {
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
                [0.9, 0.0, 0.1, 0.0], [0.0, 0.1, 0.8, 0.1], [0.0, 0.1, 0.7, 0.2], [0, 0, 0, 1],
            ],
        }
    ]
}  # fmt: skip


@pytest.fixture
def cat(page: Page) -> Page:
    """A page whose words are known."""
    translating(page, lambda request: answer("rote Katze"))
    page.unroute(ALIGN)
    page.route(ALIGN, lambda route: route.fulfill(json=ALIGNED))
    source(page).fill("red 😀 cat")
    expect(words(page)).to_have_count(2)
    return page


def test_a_word_that_is_visited_lights_up_its_source_words(cat: Page) -> None:
    words(cat).nth(1).hover()
    expect(cat.locator("mark")).to_have_text(["cat"])
    expect(cat.locator("#word")).to_have_text("“Katze” from “cat” · model score 0.14")
    words(cat).nth(0).hover()
    expect(cat.locator("mark")).to_have_text(["red"])
    cat.locator("h1").hover()
    expect(cat.locator("mark")).to_have_count(0)


def test_words_of_a_text_that_has_changed_tell_nothing(cat: Page) -> None:
    cat.unroute(TRANSLATE)
    cat.route(TRANSLATE, lambda route: route.fulfill(status=500, json=problem("it broke")))
    expect(words(cat).first).to_be_visible()
    text = target(cat).text_content()
    source(cat).press_sequentially("s")
    expect(words(cat)).to_have_count(0)
    expect(target(cat)).to_have_text(text)


def test_words_are_visited_by_keyboard(cat: Page) -> None:
    words(cat).first.focus()
    expect(cat.locator("mark")).to_have_text(["red"])
    cat.keyboard.press("ArrowRight")
    expect(words(cat).nth(1)).to_be_focused()
    expect(cat.locator("mark")).to_have_text(["cat"])
    cat.keyboard.press("Home")
    expect(cat.locator("mark")).to_have_text(["red"])
    assert cat.locator("#target [tabindex='0']").count() == 1


def test_doubtful_words_differ_by_more_than_colour(cat: Page) -> None:
    expect(cat.locator("#target .doubtful")).to_have_text(["Katze"])
    line = "e => getComputedStyle(e).textDecorationStyle"
    assert cat.locator("#target .doubtful").evaluate(line) == "dotted"
    assert "probab" not in cat.locator("body").inner_text().lower()


def test_marks_lie_where_the_words_are(cat: Page) -> None:
    words(cat).nth(1).hover()
    sizes = "([a, b]) => [a.scrollHeight - b.scrollHeight, a.offsetWidth - b.offsetWidth]"
    both = [cat.locator("#echo").element_handle(), source(cat).element_handle()]
    assert cat.evaluate(sizes, both) == [0, 0]


def test_a_text_longer_than_the_training_had_is_noted(page: Page) -> None:
    many = [{"text": "▁a", "start": 0, "end": 1}] * 50
    row = [1.0] + [0.0] * 49
    one = {"text": "▁b", "start": 0, "end": 1, "log_prob": -0.1}
    translating(page, lambda request: answer("b"))
    page.unroute(ALIGN)
    pairs = [{"source": many, "target": [one], "attention": [row]}]
    page.route(ALIGN, lambda route: route.fulfill(json={"pairs": pairs}))
    source(page).fill("a")
    expect(page.locator("#note")).to_contain_text("50 pieces; the model was trained on 40")


# Attention.


def test_attention_is_seen_and_read_by_keyboard_alone(page: Page) -> None:
    source(page).fill(SENTENCES[0])
    expect(words(page).first).to_be_visible()
    page.locator("#attention summary").focus()
    page.keyboard.press("Enter")
    heads = page.get_by_role("group", name="Heads of the layer").get_by_role("button")
    expect(heads).to_have_count(2)
    heads.nth(1).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("grid", name="cross attention, layer 1, head 2")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.locator("#cell")).to_have_text(re.compile("looks at .*: [01][.][0-9]{3}"))
    first = page.locator("#cell").text_content()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#cell")).not_to_have_text(first)
    page.keyboard.press("End")
    expect(page.locator("#cell")).to_contain_text("looks at “</s>”")
    page.locator("#kind").select_option("encoder")
    expect(page.get_by_role("grid", name="encoder attention")).to_be_visible()


def test_the_sentence_whose_attention_is_seen_can_be_chosen(page: Page) -> None:
    source(page).fill(f"{SENTENCES[0]}\n{SENTENCES[1]}")
    expect(words(page).first).to_be_visible()
    page.get_by_text("What the model looked at").click()
    expect(page.locator("#sentence option")).to_have_count(2)
    page.locator("#sentence").select_option("1")
    letters = page.locator("#map thead th").first
    expect(letters).to_have_text(SENTENCES[1][: len(letters.text_content())])


def test_attention_is_saved_as_a_picture(page: Page) -> None:
    source(page).fill(SENTENCES[0])
    expect(words(page).first).to_be_visible()
    page.get_by_text("What the model looked at").click()
    expect(page.locator("#map td").nth(1)).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download as SVG").click()
    assert download.value.suggested_filename == "attention-cross-1-1.svg"
    picture = Path(download.value.path()).read_text(encoding="utf-8")
    assert picture.startswith("<svg")
    assert "cross attention, layer 1, head 1" in picture
    assert page.locator("#map tbody td").count() == picture.count('class="value"')


def test_attention_that_fails_leaves_no_other_ones_map(page: Page) -> None:
    source(page).fill(SENTENCES[0])
    expect(words(page).first).to_be_visible()
    page.get_by_text("What the model looked at").click()
    expect(page.locator("#map td").first).to_be_visible()
    page.route(
        "**/api/v1/attention", lambda route: route.fulfill(status=500, json=problem("it broke"))
    )
    page.locator("#kind").select_option("encoder")
    expect(page.locator("#attention-error")).to_contain_text("It broke.")
    expect(page.locator("#map")).to_be_empty()
    expect(page.locator("#heads")).to_be_empty()


def test_a_text_that_is_not_aligned_has_no_attention_nor_that_of_the_text_before(
    page: Page,
) -> None:
    source(page).fill(SENTENCES[0])
    expect(words(page).first).to_be_visible()
    page.get_by_text("What the model looked at").click()
    expect(page.locator("#map td").first).to_be_visible()
    page.route("**/api/v1/align", lambda route: route.fulfill(status=503, json=problem("busy")))
    source(page).fill(SENTENCES[1])
    expect(page.locator("#attention-empty")).to_be_visible()
    expect(page.locator("#attention-view")).to_be_hidden()


# Files.


def upload(page: Page, name: str, content: bytes) -> None:
    if not page.locator("#file-input").is_visible():
        page.get_by_text("Translate a file").click()
    file = {"name": name, "mimeType": "text/plain", "buffer": content}
    page.locator("#file-input").set_input_files(file)


def downloaded(page: Page) -> tuple[str, str]:
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the translation").click()
    path = Path(download.value.path())
    return download.value.suggested_filename, path.read_bytes().decode()


def test_a_text_file_is_translated_line_by_line(page: Page) -> None:
    translated = translating_lines(page)
    lines = [f"line {number}" for number in range(70)]
    upload(page, "../lines.txt", "\r\n".join([*lines, ""]).encode())
    page.get_by_role("button", name="Translate the file").click()
    expect(page.locator("#file-status")).to_have_text("70 of 70 lines")
    name, content = downloaded(page)
    assert name == "lines.de.txt"
    assert content == "\r\n".join([*(line.upper() for line in lines), ""])
    assert max(map(len, translated)) == 32


def translating_lines(page: Page) -> list[list[str]]:
    """Answers in the server's place, a capital letter a letter."""
    asked: list[list[str]] = []

    def handle(route: Route) -> None:
        texts = body(route)["text"]
        asked.append(texts)
        loud = [text.upper().replace("|", "\t") for text in texts]
        translations = [answer(text)["translations"][0] for text in loud]
        route.fulfill(json={**answer(""), "translations": translations})

    page.route(TRANSLATE, handle)
    return asked


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("1\tone\n2\ttwo", "1\tone\tONE\n2\ttwo\tTWO"),
        ("1\tone\n2\ttwo\n", "1\tone\tONE\n2\ttwo\tTWO\n"),
        ("1\tone\n\n2\ttwo\n", "1\tone\tONE\n\n2\ttwo\tTWO\n"),
        ("1\n2\ttwo\tx", "1\t\t\t\n2\ttwo\tx\tTWO"),
        ("1\tone|two\n", "1\tone|two\tONE TWO\n"),
        ("1\tone\n2\ttwo\r\n3\tthree", "1\tone\tONE\n2\ttwo\tTWO\r\n3\tthree\tTHREE"),
    ],
)
def test_a_table_gets_a_column_more(page: Page, content: str, expected: str) -> None:
    translating_lines(page)
    upload(page, "table.tsv", content.encode())
    page.get_by_label("Column to translate").select_option(label="2")
    page.get_by_role("button", name="Translate the file").click()
    assert downloaded(page) == ("table.de.tsv", expected)


def test_a_long_text_after_a_table_has_one_column(page: Page) -> None:
    upload(page, "table.tsv", b"1\tone\n2\ttwo")
    page.get_by_label("Column to translate").select_option(label="2")
    upload(page, "long.txt", b"a\n" * 200_000)
    expect(page.locator("#column-label")).to_be_hidden()
    expect(page.locator("#column")).to_have_value("0")


def test_a_line_that_is_too_long_is_named_before_anything_is_sent(page: Page) -> None:
    asked = translating_lines(page)
    upload(page, "lines.txt", b"short\n" + b"a" * 5001)
    page.get_by_role("button", name="Translate the file").click()
    expect(page.locator("#file-error")).to_have_text("Line 2 is longer than 5000 characters.")
    assert asked == []


def test_a_file_that_failed_goes_on_where_it_was(page: Page) -> None:
    asked = translating_lines(page)
    failures = iter([None, problem("it broke")])

    def fail_once(route: Route) -> None:
        failure = next(failures, None)
        if failure:
            route.fulfill(status=500, json=failure)
        else:
            route.fallback()

    page.route(TRANSLATE, fail_once)
    lines = [f"line {number}" for number in range(70)]
    upload(page, "lines.txt", "\n".join(lines).encode())
    page.get_by_role("button", name="Translate the file").click()
    expect(page.locator("#file-error")).to_contain_text("It broke.")
    page.locator("#file-error").get_by_role("button", name="Try again").click()
    assert downloaded(page)[1] == "\n".join(lines).upper()
    assert [line for texts in asked for line in texts] == lines


def test_a_file_that_is_done_leads_to_its_translation_but_nobody_away_from_typing(
    page: Page,
) -> None:
    translating_lines(page)
    result = page.get_by_role("button", name="Download the translation")
    upload(page, "lines.txt", b"line")
    page.get_by_role("button", name="Translate the file").click()
    expect(result).to_be_focused()
    held = holding(page, "text", ["line"])
    page.get_by_role("button", name="Translate the file").click()
    source(page).focus()
    first_of(page, held).fallback()
    expect(result).to_be_visible()
    expect(source(page)).to_be_focused()


def test_a_file_goes_through_the_real_server(page: Page, app: Any) -> None:
    upload(page, "lines.txt", "\n".join(SENTENCES).encode())
    page.get_by_role("button", name="Translate the file").click()
    _, content = downloaded(page)
    assert content.split("\n") == [one["text"] for one in app.translate(SENTENCES)]


@pytest.mark.parametrize(("content", "told"), [(b"\xff\xfe\x00", "not UTF-8"), (b" \n", "empty")])
def test_a_file_that_cannot_be_used_is_told_beside_its_field(
    page: Page, content: bytes, told: str
) -> None:
    upload(page, "file.txt", content)
    expect(page.locator("#file-error")).to_contain_text(told)


def test_a_busy_server_is_waited_for(page: Page) -> None:
    translating(page, lambda request: answer("done"))

    def refuse(route: Route) -> None:
        route.fulfill(status=503, headers={"Retry-After": "1"}, json=problem("busy"))

    page.route(TRANSLATE, refuse)
    upload(page, "one.txt", b"line")
    page.get_by_role("button", name="Translate the file").click()
    expect(page.locator("#file-status")).to_contain_text("Busy. Going on in 1 s.")
    page.unroute(TRANSLATE, refuse)
    assert downloaded(page)[1] == "done"


# Errors.


def problem(message: str) -> dict[str, Any]:
    return {"error": {"code": "x", "message": message, "request_id": "1"}}


@pytest.mark.parametrize("status", [400, 404, 413, 422, 500, 502, 504])
def test_an_error_stands_beside_its_field_and_the_text_stays(page: Page, status: int) -> None:
    page.route(TRANSLATE, lambda route: route.fulfill(status=status, json=problem("it broke")))
    source(page).fill("my long text")
    expect(page.locator("#source-error")).to_contain_text("It broke.")
    expect(source(page)).to_have_value("my long text")
    assert (source(page).get_attribute("aria-invalid") == "true") == (status < 500)
    assert page.locator("#source-error").get_attribute("role") == "alert"


@pytest.mark.parametrize("status", [429, 503])
def test_a_countdown_runs_where_the_server_says_when(page: Page, status: int) -> None:
    page.route(
        TRANSLATE,
        lambda route: route.fulfill(
            status=status, headers={"Retry-After": "2"}, json=problem("too much")
        ),
    )
    source(page).fill("text")
    expect(page.locator("#source-error")).to_contain_text("Trying again in 2 s")
    expect(page.locator("#source-error")).to_contain_text("Trying again in 1 s")
    page.unroute(TRANSLATE)
    translating(page, lambda request: answer("there"))
    expect(target(page)).to_have_text("there")
    expect(page.locator("#source-error")).to_be_empty()


def test_a_server_that_is_gone_is_told_and_asked_again(page: Page) -> None:
    page.route(TRANSLATE, lambda route: route.abort("connectionrefused"))
    # The quick search is asked for first; once the good one has failed too, nothing is under way.
    with page.expect_event(
        "requestfailed", lambda request: request.post_data_json["mode"] == "beam"
    ):
        source(page).fill("text")
    expect(page.locator("#source-error")).to_contain_text("cannot be reached")
    page.unroute(TRANSLATE)
    translating(page, lambda request: answer("there"))
    page.get_by_role("button", name="Try again").click()
    expect(target(page)).to_have_text("there")


def test_a_key_is_asked_for_checked_and_shown_to_the_server(page: Page) -> None:
    def guarded(route: Route) -> None:
        if route.request.headers.get("authorization") == "Bearer good-key":
            route.fulfill(json=answer("there"))
        else:
            route.fulfill(status=401, json=problem("an API key is needed"))

    page.route(TRANSLATE, guarded)
    page.route(ALIGN, lambda route: route.fulfill(json={"pairs": []}))
    key = page.get_by_label("API key")
    expect(key).to_be_hidden()
    source(page).fill("text")
    expect(page.locator("#source-error")).to_contain_text("An API key is needed")
    for value, taken in (("“good-key”", False), ("good key", False), ("good-key", True)):
        key.fill(value)
        page.get_by_role("button", name="Use this key").click()
        expect(key).to_be_visible(visible=not taken)
    expect(target(page)).to_have_text("there")


def test_a_key_is_asked_for_but_nobody_led_away_from_typing(page: Page) -> None:
    def refuse(route: Route) -> None:
        route.fulfill(status=401, json=problem("an API key is needed"))

    page.route(TRANSLATE, refuse)
    source(page).press_sequentially("text")
    key = page.get_by_label("API key")
    expect(key).to_be_visible()
    expect(source(page)).to_be_focused()
    page.route("**/api/v1/models", refuse)
    page.reload()
    expect(key).to_be_focused()


def test_a_text_over_the_limit_is_not_sent(page: Page) -> None:
    asked = translating(page, lambda request: answer("x"))
    source(page).fill("😀" * 5001)
    expect(page.locator("#source-error")).to_contain_text("longer than 5000 characters")
    expect(page.locator("#count")).to_have_text("5,001 / 5,000")
    expect(source(page)).to_have_attribute("aria-invalid", "true")
    page.wait_for_timeout(800)
    assert asked == []
    source(page).fill("😀" * 5000)
    expect(target(page)).to_have_text("x")


# Markup.


def test_markup_is_text_in_both_panes(page: Page) -> None:
    translating(page, lambda request: answer(request["text"], f"{MARKUP}2"))
    source(page).fill(MARKUP)
    expect(page.get_by_role("option")).to_have_count(2)
    expect(target(page)).to_have_js_property("textContent", MARKUP)
    assert page.locator("main img, main script").count() == 0
    assert page.title() == "Translation"


def test_markup_goes_through_the_real_model(page: Page, app: Any) -> None:
    expected = app.translate(MARKUP)[0]["text"]
    source(page).fill(MARKUP)
    expect(words(page).first).to_be_visible()
    expect(target(page)).to_have_js_property("textContent", expected)
    page.get_by_text("What the model looked at").click()
    expect(page.locator("#map td").nth(1)).to_be_visible()
    assert page.title() == "Translation"


# Looks.


def test_right_to_left_text_runs_from_the_right(page: Page) -> None:
    translating(page, lambda request: answer("مرحبا بالعالم"))
    source(page).fill("שלום עולם")
    expect(target(page)).to_have_text("مرحبا بالعالم")
    for place in (source(page), target(page)):
        assert place.evaluate("e => e.matches(':dir(rtl)')")


@pytest.mark.parametrize("width", [375, 320])
def test_a_narrow_window_needs_no_scrolling_sideways(opened: Open, width: int) -> None:
    page = opened(viewport={"width": width, "height": 667})
    source(page).fill(f"{SENTENCES[0]}\n{'x' * 90}")
    expect(words(page).first).to_be_visible()
    for title in ("What the model looked at", "Translate a file"):
        page.get_by_text(title).click()
    expect(page.locator("#map td").nth(1)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 375])
def test_axe_finds_nothing_serious(opened: Open, scheme: str, width: int) -> None:
    page = opened(color_scheme=scheme, viewport={"width": width, "height": 800})
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (max(map(int, re.findall(r"\d+", paper))) < 60) == (scheme == "dark")
    source(page).fill(f"{SENTENCES[0]}\n{SENTENCES[1]}")
    expect(words(page).first).to_be_visible()
    for title in ("What the model looked at", "Translate a file"):
        page.get_by_text(title).click()
    expect(page.locator("#map td").nth(1)).to_be_visible()
    assert serious(page) == []
    page.route(TRANSLATE, lambda route: route.fulfill(status=422, json=problem("it broke")))
    source(page).fill("a")
    expect(page.locator("#source-error")).not_to_be_empty()
    assert serious(page) == []


def test_axe_finds_nothing_serious_in_the_documentation(opened: Open) -> None:
    page = opened("/docs")
    expect(page.get_by_role("heading", name="/api/v1/translate")).to_be_visible()
    assert serious(page) == []


def serious(page: Page) -> list[Any]:
    # Colours move for a moment.
    page.wait_for_timeout(500)
    found = Axe().run(page).response["violations"]
    return [
        (one["id"], [node["html"][:200] for node in one["nodes"]])
        for one in found
        if one["impact"] in SERIOUS
    ]
