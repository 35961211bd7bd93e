from typing import Any

from tfnmt.evaluation.diagnosis import Line, summarize
from tfnmt.evaluation.metrics import STANDARD_METRICS
from tfnmt.evaluation.report import ERRORS, report

LINES = [
    Line(1, "the dog", "der Hund", "der Hund", 100.0, ()),
    Line(2, "a cat", "eine Katze", "der Hund", 10.0, ("numbers",)),
    Line(3, "two cats", "zwei Katzen", "zwei", 40.0, ("omission", "numbers")),
    Line(4, "*a* <b> | c", "`d` [e]", "f_g", 30.0, ()),
]
OTHERS = [
    LINES[0],
    LINES[1]._replace(translation="eine Katze", chrf=100.0, errors=()),
    LINES[2]._replace(translation="zwo", chrf=20.0, errors=("omission",)),
    LINES[3]._replace(chrf=29.0),
]


def evaluation(lines: list[Line]) -> dict[str, Any]:
    score = {"score": 12.5, "low": 11.0, "high": 13.0, "signature": "nrefs:1|bs:1000"}
    return {
        **dict.fromkeys(STANDARD_METRICS, score),
        "model": "runs/toy-en-de",
        "source": "en",
        "target": "de",
        "split": "val",
        "sentences": len(lines),
        "beam_size": 4,
        "length_penalty": 0.6,
        "step": 12,
        **summarize(lines),
    }


def compared() -> dict[str, Any]:
    difference = {"difference": -1.5, "low": -2.0, "high": 0.5, "p_value": 0.125}
    against = {**evaluation(OTHERS), "model": "runs/other"}
    against["differences"] = dict.fromkeys(STANDARD_METRICS, difference)
    return {**evaluation(LINES), "against": against}


def sections(page: str) -> dict[str, str]:
    """Return the text below each heading."""
    return dict(part.split("\n", 1) for part in page.split("\n## ")[1:])


def test_report_of_one_model_has_scores_errors_lengths_and_worst_lines() -> None:
    page = report(evaluation(LINES), LINES)
    found = sections(page)
    assert list(found) == [
        "Scores",
        "Likely errors",
        "BLEU by length",
        "Worst lines (4 of 4)",
        "Omission (1 of 1)",
        "Numbers (2 of 2)",
    ]
    assert page.startswith("# runs/toy-en-de\n\n4 sentences of val, en to de.\n")
    assert "| model | 12.50 [11.00, 13.00] |" in found["Scores"]
    assert "`nrefs:1|bs:1000`" in found["Scores"]
    for error, meaning in ERRORS.items():
        count = {"omission": 1, "numbers": 2}.get(error, 0)
        assert f"| {error} | {count} | {meaning} |" in found["Likely errors"]
    assert "| 0 to 24 | 4 |" in found["BLEU by length"]
    assert "other" not in page


def test_report_lists_the_worst_lines_first() -> None:
    worst = sections(report(evaluation(LINES), LINES))["Worst lines (4 of 4)"]
    assert [worst.index(f"**Line {number}**") for number in (2, 4, 3, 1)] == sorted(
        worst.index(f"**Line {number}**") for number in (1, 2, 3, 4)
    )
    assert "**Line 3** (chrF 40.0; omission; numbers)" in worst
    assert "- source: two cats\n- reference: zwei Katzen\n- model: zwei\n" in worst


def test_report_of_a_comparison_has_both_models_and_the_lines_that_differ() -> None:
    found = sections(report(compared(), LINES, OTHERS))
    assert "| difference | -1.50 [-2.00, +0.50] |" in found["Scores"]
    assert "| p | 0.125 |" in found["Scores"]
    assert "runs/other" in found["Scores"]
    assert "| numbers | 2 | 0 |" in found["Likely errors"]
    better = found["Better than the other model (2 of 2)"]
    worse = found["Worse than the other model (1 of 1)"]
    assert better.index("**Line 3** (chrF 40.0, other model 20.0") < better.index("**Line 4**")
    assert "- model: zwei\n- against: zwo\n" in better
    assert "**Line 2**" in worse
    assert "**Line 1**" not in better + worse


def test_report_limits_the_length_of_lists() -> None:
    lines = [LINES[1]._replace(number=number) for number in range(1, 30)]
    found = sections(report(evaluation(lines), lines))
    assert found["Worst lines (20 of 29)"].count("**Line") == 20
    assert found["Numbers (5 of 29)"].count("**Line") == 5


def test_report_escapes_markdown_in_texts() -> None:
    worst = sections(report(evaluation(LINES), LINES))["Worst lines (4 of 4)"]
    assert r"- source: \*a\* \<b\> \| c" in worst
    assert r"- reference: \`d\` \[e\]" in worst
    assert r"- model: f\_g" in worst
