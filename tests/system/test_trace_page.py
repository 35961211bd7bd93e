"""Tests of the trace page in Chromium, opened as a file."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect

from tfnmt import trace


@pytest.fixture(scope="module")
def path(call: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "page.html"
    call(trace, "--tiny", f"--html={path}")
    return path


@pytest.fixture
def page(browser: Browser, path: Path) -> Iterator[Page]:
    """Open the page. It may report no errors and may request nothing except itself."""
    events: list[str] = []
    page = browser.new_page()
    page.on("console", lambda message: events.append(message.text))
    page.on("pageerror", lambda error: events.append(str(error)))
    page.on("request", lambda request: events.append(request.url))
    page.goto(path.as_uri())
    yield page
    page.close()
    assert events == [path.as_uri()]


def attention_cells(page: Page) -> list[list[float]]:
    rows = page.locator("#weights tbody tr")
    return [
        [float(text) for text in rows.nth(number).locator("td").all_text_contents()]
        for number in range(rows.count())
    ]


def test_attention_without_mask_reaches_later_positions_and_padding(page: Page) -> None:
    page.get_by_role("combobox", name="layer").select_option("decoder/layer_0/self_attention")
    masked = attention_cells(page)
    assert masked[0] == [1.0, 0.0]
    page.get_by_role("checkbox", name="mask").uncheck()
    unmasked = attention_cells(page)
    assert unmasked[0][1] > 0
    assert unmasked[1] == masked[1]  # the last position attends to everything in any case
    assert [sum(row) for row in unmasked] == pytest.approx([1, 1], abs=0.002)
    expect(page.locator("#weights td.leaked")).to_have_count(1)
    expect(page.locator("#mask-effect")).to_contain_text("the token that it has to predict")

    page.get_by_role("combobox", name="layer").select_option("decoder/layer_0/cross_attention")
    expect(page.locator("#mask-effect")).to_contain_text("Nothing is masked here")
    assert [len(row) for row in attention_cells(page)] == [3, 3]
    page.locator("#sentence").select_option("1")
    expect(page.locator("#mask-effect")).to_contain_text("on padding")
    page.get_by_role("checkbox", name="mask").check()
    assert [row[2] for row in attention_cells(page)] == [0, 0]


def test_nudged_logit_changes_the_loss_and_can_be_reset(page: Page) -> None:
    cross, total = page.locator("#cross"), page.locator("#total")
    before = cross.inner_text(), total.inner_text()
    slider = page.get_by_label("nudge the logit of dog")
    slider.fill("3")
    assert float(cross.inner_text()) < float(before[0])
    change = float(page.locator("#smoothed-change").inner_text().split()[0].replace("\u2212", "-"))
    assert float(total.inner_text()) - float(before[1]) == pytest.approx(change, abs=2e-4)
    page.get_by_label("nudge the logit of run").fill("8")
    assert float(cross.inner_text()) > float(before[0])
    page.get_by_role("button", name="Reset").click()
    assert (cross.inner_text(), total.inner_text()) == before
    expect(page.locator("#cross-change")).to_contain_text("0.0000")


def test_page_computes_the_loss_of_the_command(
    page: Page, call: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    call(trace, "--tiny", "--nudge=0,0,dog,1.5")
    text = capsys.readouterr().out
    found = re.search(r"^smoothed loss +(\S+) -> +(\S+)", text, re.MULTILINE)
    assert found
    expect(page.locator("#total")).to_have_text(found[1])
    page.get_by_label("nudge the logit of dog").fill("1.5")
    expect(page.locator("#total")).to_have_text(found[2])


def test_beam_search_steps_forward_to_its_end_and_back(page: Page) -> None:
    back = page.get_by_role("button", name="One step back")
    forward = page.get_by_role("button", name="One step forward")
    nodes = page.locator("#tree g.node")
    page.locator("#searched").select_option("1")
    counts = [nodes.count()]
    while forward.is_enabled():
        forward.click()
        counts.append(nodes.count())
    assert len(counts) > 2
    assert counts == sorted(set(counts))
    expect(page.locator("#verdict")).to_contain_text("The search has stopped")
    expect(page.locator("#tree .finished.best")).to_have_count(1)
    assert page.locator("#finished tr").count() >= 1
    outcomes = page.locator("#candidates td:last-child").all_text_contents()
    assert len(outcomes) == nodes.count() - counts[-2]
    known = r"live when the search stopped|pruned.*|finished, score -\d\.\d{4}.*"
    assert all(re.fullmatch(known, outcome) for outcome in outcomes)  # of the last step
    while back.is_enabled():
        back.click()
    expect(nodes).to_have_count(1)
    expect(page.locator("#verdict")).to_contain_text("Before the first step")
    page.get_by_label("Step of the search").press("End")
    expect(nodes).to_have_count(counts[-1])


def mixing_rows(page: Page) -> list[Locator]:
    rows = page.locator(".mix tr")
    return [rows.nth(number).locator("td") for number in range(rows.count())]


def test_tensors_are_grouped_by_layer(page: Page) -> None:
    groups = page.locator("#steps summary")
    assert groups.all_text_contents() == [
        "source embedding",
        "encoder/layer_0",
        "target embedding",
        "decoder",
        "decoder/layer_0",
        "logits",
    ]
    groups.nth(1).click()
    layer = page.locator("#steps details").nth(1)
    expect(layer).to_contain_text("scores  (2, 2, 3, 3)")
    expect(layer).to_contain_text("Positions do not mix: each is processed separately.")
    assert {"".join(row.all_text_contents()) for row in mixing_rows(page)} >= {
        "111",
        "100",
        "010",
        "001",
    }
    page.get_by_text("Parameters by block").click()
    expect(page.locator("#blocks")).to_contain_text("8*32 + 32 + 32*8 + 8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_has_no_accessibility_violations(page: Page, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.get_by_role("checkbox", name="mask").uncheck()
    violations = Axe().run(page).response["violations"]
    assert [each["id"] for each in violations if each["impact"] in ("serious", "critical")] == []


def test_page_fits_a_narrow_window(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
