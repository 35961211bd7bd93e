"""The explorer of a web export in headless Chromium, with real tensors of a tiny model."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from benchmarks.browser import StaticServer
from tests.system.conftest import StartApp
from tfnmt.exporting.web import export_web
from tfnmt.litert.files import GRAPHS
from tfnmt.litert.interpreters import Interpreters

SENTENCE = "the old king"
VIEWS = (
    "tokens embeddings encoder decoder cross masks residual output why beam cache".split()  # noqa: SIM905
)
TOUR_STEPS = 12

OpenExplorer = Callable[..., Page]


@pytest.fixture(scope="module")
def folder(litertjs: Path, two_way_litert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A web export of the model of two directions."""
    path = tmp_path_factory.mktemp("explorer") / "export"
    export_web(two_way_litert, litertjs, path)
    return path


@pytest.fixture(scope="module")
def site(folder: Path) -> Iterator[str]:
    """The address of the web export on a server for static files."""
    server = StaticServer(folder)
    yield server.url
    server.stop()


@pytest.fixture
def open_explorer(browser: Browser, site: str) -> Iterator[OpenExplorer]:
    """Open explorers; at the end, check for errors, and requests to other sites."""
    problems: list[str] = []
    contexts = []

    def open_in_new_context(name: str = "tokens", **options: Any) -> Page:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on(
            "console",
            lambda message: (
                problems.append(message.text) if message.type in ("error", "warning") else None
            ),
        )
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "request",
            lambda request: None if request.url.startswith(site) else problems.append(request.url),
        )
        page.goto(f"{site}/explorer.html#{name}&direction=en-de&text={SENTENCE}")
        expect(page.locator("#explorer")).to_be_visible()
        return page

    yield open_in_new_context
    for context in contexts:
        context.close()
    assert problems == []


def show(page: Page, view: str) -> None:
    """Open a view as the user does, and wait until it is drawn."""
    page.locator(f"#views a[href='#{view}']").click()
    expect(page.locator(f"#views a[href='#{view}']")).to_have_attribute("aria-current", "true")
    expect(page.locator("#view > *").first).to_be_visible()
    if view == "beam":
        finish_search(page)


def finish_search(page: Page) -> None:
    expect(page.get_by_text("The search is done")).to_be_visible()
    expect(page.locator("#strip[aria-busy]")).to_have_count(0)


def translation(page: Page) -> list[str]:
    return page.locator("#strip-rows .chip.target").all_inner_texts()


def test_every_view_is_drawn_and_timed_and_has_links(open_explorer: OpenExplorer) -> None:
    page = open_explorer()
    for view in VIEWS:
        show(page, view)
        assert page.locator("#paper a").count() > 0
        for button in page.locator("#code button").all():
            name = button.inner_text()
            button.click()
            expect(page.locator("#code-text")).to_contain_text(f"def {name.split('.')[-1]}(")
            page.locator("#code-close").click()
    for position in 1, 2:
        page.locator("#strip-rows .chip.source").nth(position).click()
    times = page.evaluate("performance.getEntriesByName('view').map(({ duration }) => duration)")
    assert len(times) > len(VIEWS)


def test_tensors_are_those_of_the_file(open_explorer: OpenExplorer, two_way_litert: Path) -> None:
    page = open_explorer()
    ids = {"source": [4, 300, 270, 280, 2], "target": [290, 310, 2]}
    found = page.evaluate(
        """async (ids) => {
            const { Model } = await import("./js/model.js");
            const model = new Model(() => {});
            await model.load();
            const tensors = await model.run("inspect", ids);
            const list = Object.entries(tensors);
            return list.map(([name, { data, shape }]) => [name, Array.from(data), shape]);
        }""",
        ids,
    )
    inputs = {name: np.array([values], np.int32) for name, values in ids.items()}
    expected = Interpreters(two_way_litert / GRAPHS, 1).run("inspect", **inputs)
    assert {name for name, _, _ in found} == set(expected)
    for name, data, shape in found:
        np.testing.assert_allclose(
            np.reshape(data, shape)[0], expected[name], atol=1e-4, rtol=1e-4, err_msg=name
        )


def test_search_finds_the_translation_of_the_file_and_can_be_stepped(
    open_explorer: OpenExplorer,
) -> None:
    page = open_explorer("beam")
    for text in (SENTENCE, "the dog sleeps .", "she knows that the old king sees a small cat"):
        page.locator("#source").fill(text)
        page.wait_for_timeout(300)  # a pause in typing
        expect(page.locator(".check")).to_contain_text("finds the same translation")
    page.get_by_role("button", name="Start again").click()
    expect(page.locator(".node")).to_have_count(1)
    page.get_by_role("button", name="One step").click()
    expect(page.locator(".node")).to_have_count(5)  # the root, and twice the beam of 2
    page.get_by_role("button", name="Run to the end").click()
    finish_search(page)
    page.locator("[data-key=beamSize]").fill("3")
    expect(page.locator(".check")).to_have_count(0)  # the file has no search with this beam
    finish_search(page)
    page.get_by_role("button", name="Start again").click()
    page.get_by_role("button", name="One step").click()
    expect(page.locator(".node")).to_have_count(7)


def test_distributions_of_the_sentence_before_are_dropped(open_explorer: OpenExplorer) -> None:
    found = open_explorer().evaluate(
        """async () => {
            const { Model } = await import("./js/model.js");
            const { Session } = await import("./js/explorer/session.js");
            const session = await Session.load(new Model());
            session.open("the dog sleeps .", "de", new Set());
            const late = session.distribution([]);
            const slow = session.translate({ beamSize: 3, alpha: 0, temperature: 1 }, []);
            session.open("the old king", "de", new Set());
            await Promise.all([late, slow]);
            return session.distributionAfter([]) === undefined;
        }"""
    )
    assert found


def test_kept_distributions_share_no_memory_with_tensors(open_explorer: OpenExplorer) -> None:
    sizes = open_explorer().evaluate(
        """async () => {
            const { Model } = await import("./js/model.js");
            const { Session } = await import("./js/explorer/session.js");
            const session = await Session.load(new Model());
            session.open("the dog sleeps .", "de", new Set());
            await session.distribution([300], [300, 310]);
            const kept = [[], [300], [300, 310]].map(session.distributionAfter);
            return kept.map(({ byteLength, buffer }) => [byteLength, buffer.byteLength]);
        }"""
    )
    assert len(sizes) == 3
    assert all(row == memory for row, memory in sizes)


def test_temperature_of_another_view_is_that_of_the_search(open_explorer: OpenExplorer) -> None:
    page = open_explorer("beam")
    finish_search(page)
    before = page.locator(".node small").all_inner_texts()
    show(page, "output")
    page.locator("[data-key=temperature]").fill("0.3")
    show(page, "beam")
    expect(page.locator(".range output").last).to_have_text("0.3")
    assert page.locator(".node small").all_inner_texts() != before


def test_forced_token_stays_and_the_search_continues_from_it(open_explorer: OpenExplorer) -> None:
    page = open_explorer("output")
    before = translation(page)
    page.locator(".steps button").first.click()
    second = page.locator(".top button").nth(1)
    token = second.locator(".name").inner_text()
    assert token != before[0]
    second.click()
    expect(page.locator("#strip-rows .chip.target").first).to_have_text(token)
    expect(page.locator("#notice")).to_contain_text("Forced")
    page.locator("#notice button").click()
    expect(page.locator("#notice")).to_be_hidden()
    expect(page.locator("#strip-rows .chip.target").first).to_have_text(before[0])
    assert translation(page) == before


def test_low_temperature_sharpens_the_distribution(open_explorer: OpenExplorer) -> None:
    page = open_explorer("output")
    first = page.locator(".top .number").first
    before = float(first.inner_text().removesuffix(" %"))
    page.locator("[data-key=temperature]").fill("0.3")
    expect(page.locator(".range output")).to_have_text("0.3")
    assert float(first.inner_text().removesuffix(" %")) > before


def test_arrow_keys_select_tokens_and_keep_the_focus(open_explorer: OpenExplorer) -> None:
    page = open_explorer("cross")
    chips = page.locator("#strip-rows .chip.target")
    chips.nth(0).click()
    page.keyboard.press("ArrowRight")
    expect(chips.nth(1)).to_be_focused()
    expect(chips.nth(1)).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".matrix tbody tr").nth(1)).to_have_class("selected")
    page.locator(".matrix td[tabindex='0']").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".caption")).to_contain_text("attends to")


def test_hidden_token_gets_no_attention(open_explorer: OpenExplorer) -> None:
    page = open_explorer("masks")
    page.locator("#view .chip.source").nth(2).click()
    expect(page.locator("#notice")).to_contain_text("Hidden: 1 source token")
    chip = page.locator("#strip-rows .chip.source").nth(2)
    expect(chip).to_have_attribute("title", re.compile("< 0.01 %"))
    show(page, "cross")
    for row in page.locator(".matrix tbody tr").all():
        assert row.locator("td").nth(2).inner_text() == ".00"


def test_matrix_rows_sum_to_1_and_later_positions_are_masked(open_explorer: OpenExplorer) -> None:
    page = open_explorer("decoder")
    rows = page.locator(".matrix tbody tr").all()
    for number, row in enumerate(rows):
        weights = [text for text in row.locator("td").all_inner_texts() if text]
        assert len(weights) == number + 1
        assert sum(map(float, weights)) == pytest.approx(1, abs=0.005 * len(weights))


def test_cached_positions_do_not_change(open_explorer: OpenExplorer) -> None:
    page = open_explorer("cache")
    page.locator("#strip-rows .chip.target").nth(2).click()
    proof = page.get_by_text("differs by at most")
    expect(proof).to_be_visible()
    (most,) = re.findall(r"at most ([\d.e-]+)\.", proof.inner_text())
    assert float(most) < 1e-6


def test_translation_of_the_user_is_scored(open_explorer: OpenExplorer) -> None:
    page = open_explorer()
    page.get_by_label("Score your own translation").fill("der alte König")
    page.get_by_label("Score your own translation").press("Enter")
    expect(page.locator("#notice")).to_contain_text("your own translation")
    shown = "".join(translation(page)).replace("␣", " ")
    assert shown == " der alte König</s>"


def test_tour_is_walked_by_keyboard(open_explorer: OpenExplorer) -> None:
    page = open_explorer()
    page.get_by_role("link", name="Guided tour").focus()
    page.keyboard.press("Enter")
    titles = []
    for number in range(1, TOUR_STEPS + 1):
        expect(page.locator("#tour-number")).to_have_text(f"Step {number} of {TOUR_STEPS}")
        expect(page.locator("#tour-title")).to_be_focused()
        titles.append(page.locator("#tour-title").inner_text())
        expect(page.locator("#view > *").first).to_be_visible()
        for _ in range(1 if number == 1 else 2):
            page.keyboard.press("Tab")  # to Back, and then to Next
        page.keyboard.press("Enter")
    expect(page.locator("#tour")).to_be_hidden()
    assert len(set(titles)) == TOUR_STEPS


def test_skip_link_does_not_end_the_tour(open_explorer: OpenExplorer) -> None:
    page = open_explorer("tour-2")
    page.get_by_role("link", name="Skip to the view").press("Enter")
    expect(page.locator("#title")).to_be_focused()
    page.evaluate("new Promise((resolve) => setTimeout(resolve))")  # the event of the address
    expect(page.locator("#tour")).to_be_visible()


def test_error_after_the_start_is_shown(browser: Browser, site: str) -> None:
    page = browser.new_page()
    page.goto(f"{site}/explorer.html")
    expect(page.locator("#explorer")).to_be_visible()
    page.evaluate("setTimeout(async () => { throw new Error('out of memory'); })")
    expect(page.locator("#state")).to_have_text("The explorer cannot continue: out of memory")
    page.close()


def test_views_have_no_accessibility_problems(open_explorer: OpenExplorer) -> None:
    for scheme in "light", "dark":
        page = open_explorer(color_scheme=scheme, reduced_motion="reduce")
        for view in VIEWS:
            show(page, view)
            results = Axe().run(page).response["violations"]
            problems = [
                (each["id"], [node["html"][:200] for node in each["nodes"]]) for each in results
            ]
            assert problems == [], (scheme, view)


def test_phone_has_no_horizontal_scroll_bar(open_explorer: OpenExplorer) -> None:
    page = open_explorer(viewport={"width": 360, "height": 740})
    for view in VIEWS:
        show(page, view)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, view


def test_translator_links_to_the_explorer_with_its_sentence(
    open_explorer: OpenExplorer, site: str
) -> None:
    page = open_explorer()
    page.goto(f"{site}/")
    page.get_by_role("textbox", name="Text to translate").fill("The dog sleeps. It is old.")
    page.get_by_role("link", name="Look inside the model").click()
    expect(page.locator("#source")).to_have_value("The dog sleeps.")
    card = json.loads(page.evaluate("fetch('model/model_card.json').then((r) => r.text())"))
    assert page.locator("#direction").input_value() == card["directions"][0]


def test_web_application_links_to_the_explorer(
    browser: Browser, start_app: StartApp, folder: Path, two_way_litert: Path
) -> None:
    problems: list[str] = []
    page = browser.new_page()
    page.on("pageerror", lambda error: problems.append(str(error)))
    with start_app(f"--model=toy={two_way_litert}", f"--explorer={folder}") as app:
        app.wait(200)
        page.goto(app.url)
        page.get_by_role("link", name="Look inside the model").click()
        expect(page.locator("#strip-rows .chip.target").first).to_be_visible()
        assert page.url.startswith(f"{app.url}/inside/")
    page.close()
    assert problems == []
