"""Writes the tables of README.md and docs/performance.md from what the benchmarks measured.

    python -m benchmarks.report [--check]

benchmarks/results/NAME.jsonl holds what `python -m benchmarks.NAME` printed, behind a line that
says with what command, when and on what machine. A page has the table of NAME between the lines
`<!-- results: NAME -->` and `<!-- end -->`. --check writes nothing, and fails where a table is old.
"""

import json
import re
from pathlib import Path
from typing import Any

from absl import flags

from tfnmt.cli import run
from tfnmt.errors import UserError
from tfnmt.progress import say

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
PLACE = re.compile(r"(<!-- results: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

TITLES = {
    "system": "system",
    "batch_size": "sentences together",
    "ms": "ms",
    "target_tokens_per_s": "target tokens/s",
    "tokens_per_s": "tokens/s",
    "sentences_per_s": "sentences/s",
    "compile_s": "compiled in, s",
    "ours_to_theirs": "speed of the first to this",
    "share_of_plain_product": "of the plain product's rate",
    "first_translation_s": "first translation, s",
    "peak_mb": "peak memory, MB",
    "same_lines": "lines as ours",
}
"""The keys of a result that a table shows, in this order, and what stands above them."""

FLAGS = flags.FlagValues()
flags.DEFINE_bool("check", False, "only look whether the tables are as measured", flag_values=FLAGS)


def main(values: Any, positional: list[str]) -> None:
    """Goes through the pages."""
    old = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        filled = PLACE.sub(
            lambda place: place[1] + table(RESULTS / f"{place[2]}.jsonl") + place[3], text
        )
        if filled != text:
            old.append(str(page.relative_to(ROOT)))
            if not values.check:
                page.write_text(filled, encoding="utf-8")
    if old and values.check:
        raise UserError(
            f"{', '.join(old)}: not as measured; python -m benchmarks.report writes them"
        )
    say(f"written: {', '.join(old)}" if old else "all tables are as measured")


def table(path: Path) -> str:
    """What a file of results holds, as Markdown."""
    about, *lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    keys = [key for key in TITLES if any(key in line for line in lines)]
    rows = [[_shown(line.get(key, "")) for key in keys] for line in lines]
    head = [[TITLES[key] for key in keys], ["---", *["--:"] * (len(keys) - 1)]]
    drawn = "\n".join(f"| {' | '.join(row)} |" for row in (*head, *rows))
    return f"\n{drawn}\n\n`{about['command']}`, {about['date']}, {about['machine']}.\n\n"


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)


if __name__ == "__main__":
    run(main, FLAGS, __doc__)
