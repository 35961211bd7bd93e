"""Check every signature of a served model, then send hostile texts.

    python -m tests.soak.serving --url=http://127.0.0.1:8501/v1/models/demo [--target=de]
        [--input=F] [--hostile=10000] [--seed=1] [--pid=N]

First, every signature that takes text is called with rows and with columns. Both must give the
same result. Prints one JSON line per signature.

Then --hostile texts (default: none) are sent, several per request, to each signature in turn:
random bytes, control characters, broken markup, very long words. Every request must be answered
with valid UTF-8 and finite numbers. Only a text with an unpaired surrogate may be refused. --pid is
the process id of the server; it adds the server's memory at every tenth of the texts.

The exit status is 1 if a check fails. `python -m benchmarks.serving` measures a server under load.
"""

import random
import sys
from typing import Any

from absl import flags

from benchmarks.measurement import read_sentences
from benchmarks.rest import RestClient
from tests.soak.contract import check_contract
from tests.soak.hostile_inputs import attack
from tfnmt.cli import run_command
from tfnmt.errors import UsageError

CONTRACT_TEXTS = 3

FLAGS = flags.FlagValues()
flags.DEFINE_string("url", None, "REST address of the model", flag_values=FLAGS)
flags.DEFINE_string(
    "target", None, "language to translate to, for a model with several", flag_values=FLAGS
)
flags.DEFINE_string(
    "input",
    None,
    "file with sentences, one per line (default: the toy corpus)",
    flag_values=FLAGS,
)
flags.DEFINE_integer("hostile", 0, "hostile texts to send", lower_bound=0, flag_values=FLAGS)
flags.DEFINE_integer("seed", 1, "random seed of the hostile texts", flag_values=FLAGS)
flags.DEFINE_integer(
    "pid", None, "process id of the server, to report its memory", flag_values=FLAGS
)


def main(values: Any, positional: list[str]) -> None:
    """Check the contract, then attack."""
    if positional or not values.url:
        raise UsageError("--url: missing; give for example http://127.0.0.1:8501/v1/models/demo")
    rest = RestClient(values.url, values.target)
    passed = check_contract(rest, read_sentences(values.input)[:CONTRACT_TEXTS])
    if passed and values.hostile:
        passed = attack(rest, values.hostile, random.Random(values.seed), values.pid)
    if not passed:
        sys.exit(1)


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
