"""The page of a trace in Chromium, opened from its file, and played with."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect

from tfnmt import trace

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def path(call: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "page.html"
    call(trace, "--tiny", f"--html={path}")
    return path


@pytest.fixture
def page(browser: Browser, path: Path) -> Iterator[Page]:
    """Nothing may be wrong with the page, nor may it ask anybody for anything."""
    complaints: list[str] = []
    page = browser.new_page()
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: complaints.append(request.url))
    page.goto(path.as_uri())
    yield page
    page.close()
    assert complaints == [path.as_uri()]


def cells(page: Page) -> list[list[float]]:
    rows = page.locator("#weights tbody tr")
    return [
        [float(text) for text in rows.nth(number).locator("td").all_text_contents()]
        for number in range(rows.count())
    ]


def test_a_mask_that_is_switched_off_lets_weights_flow(page: Page) -> None:
    page.get_by_role("combobox", name="layer").select_option("decoder/layer_0/self_attention")
    masked = cells(page)
    assert masked[0] == [1.0, 0.0]
    page.get_by_role("checkbox", name="mask").uncheck()
    bare = cells(page)
    assert bare[0][1] > 0
    assert bare[1] == masked[1]  # it sees all that there is in any case
    assert [sum(row) for row in bare] == pytest.approx([1, 1], abs=0.002)
    expect(page.locator("#weights td.cheat")).to_have_count(1)
    expect(page.locator("#seen")).to_contain_text("the very piece that it is to predict")

    page.get_by_role("combobox", name="layer").select_option("decoder/layer_0/cross_attention")
    expect(page.locator("#seen")).to_contain_text("Nothing is masked here")
    assert [len(row) for row in cells(page)] == [3, 3]
    page.locator("#sentence").select_option("1")
    expect(page.locator("#seen")).to_contain_text("to padding")
    page.get_by_role("checkbox", name="mask").check()
    assert [row[2] for row in cells(page)] == [0, 0]


def test_a_nudged_logit_moves_the_loss_and_can_be_put_back(page: Page) -> None:
    cross, total = page.locator("#cross"), page.locator("#total")
    before = cross.inner_text(), total.inner_text()
    slider = page.get_by_label("nudge the logit of cat")
    slider.fill("3")
    assert float(cross.inner_text()) < float(before[0])
    moved = float(page.locator("#smoothed-by").inner_text().split()[0].replace("\u2212", "-"))
    assert float(total.inner_text()) - float(before[1]) == pytest.approx(moved, abs=2e-4)
    page.get_by_label("nudge the logit of dog").fill("8")
    assert float(cross.inner_text()) > float(before[0])
    page.get_by_role("button", name="Put back").click()
    assert (cross.inner_text(), total.inner_text()) == before
    expect(page.locator("#cross-by")).to_contain_text("0.0000")


def test_the_page_comes_to_the_commands_own_loss(
    page: Page, call: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    call(trace, "--tiny", "--nudge=0,0,cat,1.5")
    text = capsys.readouterr().out
    found = re.search(r"^smoothed loss +(\S+) -> +(\S+)", text, re.MULTILINE)
    assert found
    expect(page.locator("#total")).to_have_text(found[1])
    page.get_by_label("nudge the logit of cat").fill("1.5")
    expect(page.locator("#total")).to_have_text(found[2])


def test_the_beam_is_stepped_to_its_end_and_back(page: Page) -> None:
    back = page.get_by_role("button", name="One step back")
    forth = page.get_by_role("button", name="One step forth")
    nodes = page.locator("#tree g.node")
    page.locator("#searched").select_option("1")
    counts = [nodes.count()]
    while forth.is_enabled():
        forth.click()
        counts.append(nodes.count())
    assert len(counts) > 2
    assert counts == sorted(set(counts))
    expect(page.locator("#verdict")).to_contain_text("The search is over")
    expect(page.locator("#tree .ended.won")).to_have_count(1)
    assert page.locator("#finished tr").count() >= 1
    fates = page.locator("#candidates td:last-child").all_text_contents()
    assert len(fates) == nodes.count() - counts[-2]
    known = r"live when the search stopped|pruned.*|finished, score -\d\.\d{4}.*"
    assert all(re.fullmatch(known, fate) for fate in fates)  # of the last step
    while back.is_enabled():
        back.click()
    expect(nodes).to_have_count(1)
    expect(page.locator("#verdict")).to_contain_text("Nothing is written yet")
    page.get_by_label("Step of the search").press("End")
    expect(nodes).to_have_count(counts[-1])


def mixes(page: Page) -> list[Locator]:
    rows = page.locator(".mix tr")
    return [rows.nth(number).locator("td") for number in range(rows.count())]


def test_every_tensor_is_behind_a_summary(page: Page) -> None:
    groups = page.locator("#steps summary")
    assert groups.all_text_contents() == [
        "source embedding", "encoder/layer_0", "target embedding", "decoder", "decoder/layer_0",
        "logits",
    ]  # fmt: skip
    groups.nth(1).click()
    layer = page.locator("#steps details").nth(1)
    expect(layer).to_contain_text("scores  (2, 2, 3, 3)")
    expect(layer).to_contain_text("Positions do not mix: each is worked on alone.")
    assert {"".join(row.all_text_contents()) for row in mixes(page)} >= {"111", "100", "010", "001"}
    page.get_by_text("Parameters, block by block").click()
    expect(page.locator("#blocks")).to_contain_text("8*32 + 32 + 32*8 + 8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_for_everybody(page: Page, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.get_by_role("checkbox", name="mask").uncheck()
    found = Axe().run(page).response["violations"]
    assert [each["id"] for each in found if each["impact"] in ("serious", "critical")] == []


def test_a_narrow_window_scrolls_only_what_is_wide(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
