"""Write the tables of docs/results/performance.md from the results of the benchmarks.

    python -m benchmarks.report [--check]

benchmarks/results/NAME.jsonl holds the output of `python -m benchmarks.NAME`. Its first line has
the command, the date and the machine. The page contains the table of NAME between the lines
`<!-- results: NAME -->` and `<!-- end -->`. --check writes nothing, and fails if a table is
outdated.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from absl import flags

from tfnmt.cli import run_command
from tfnmt.errors import UserError
from tfnmt.progress import log

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "results" / "performance.md"
TABLE = re.compile(r"(<!-- results: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

TITLES = {
    "system": "system",
    "batch_size": "batch size",
    "ms": "ms",
    "target_tokens_per_s": "target tokens/s",
    "tokens_per_s": "tokens/s",
    "sentences_per_s": "sentences/s",
    "compile_s": "compilation, s",
    "speedup_of_tfnmt": "speedup of tfnmt",
    "share_of_reference_matmul": "share of matmul speed",
    "first_translation_s": "first translation, s",
    "peak_mb": "peak memory, MB",
    "same_lines": "lines equal to tfnmt",
}
"""The keys of a result that a table shows, in this order, with their column titles."""

FLAGS = flags.FlagValues()
flags.DEFINE_bool("check", False, "only check that the tables are up to date", flag_values=FLAGS)


def main(values: Any, positional: list[str]) -> None:
    """Write or check the tables of the page."""
    page = PAGE.relative_to(ROOT)
    text = PAGE.read_text(encoding="utf-8")
    updated = TABLE.sub(
        lambda found: found[1] + table(RESULTS / f"{found[2]}.jsonl") + found[3], text
    )
    if updated == text:
        log("all tables are up to date")
    elif values.check:
        raise UserError(f"{page}: outdated tables; run `python -m benchmarks.report`")
    else:
        PAGE.write_text(updated, encoding="utf-8")
        log(f"updated: {page}")


def table(path: Path, titles: Mapping[str, str] = TITLES) -> str:
    """Return the results of a file as a Markdown table.

    Args:
        path: A file of JSON lines. The first one has the command, the date and the machine.
        titles: The keys that the table shows, in this order, with their column titles.
    """
    about, *lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    keys = [key for key in titles if any(key in line for line in lines)]
    rows = [[_format(line.get(key, "")) for key in keys] for line in lines]
    head = [[titles[key] for key in keys], ["---", *["--:"] * (len(keys) - 1)]]
    markdown = "\n".join(f"| {' | '.join(row)} |" for row in (*head, *rows))
    return f"\n{markdown}\n\n`{about['command']}`, {about['date']}, {about['machine']}.\n\n"


def _format(value: object) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
