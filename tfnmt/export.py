"""Exports a run as a SavedModel: text to text, for TensorFlow Serving.

    python -m tfnmt.export --model=RUN --output=DIR [--version=N] [--keep=N]
    python -m tfnmt.export --model=RUN --bundle=F.tar.gz
    python -m tfnmt.export --model=RUN --output=DIR --format=ctranslate2 [--quantization=int8]

writes DIR/<version>/, by default the next free number. It appears only when it is complete, and
only if a fresh process, which has nothing of tfnmt, gets from it what the run answers. --bundle
packs the run itself into one archive; its URL is a --model of translate, evaluate, score and
export.
"""

from pathlib import Path
from typing import Any

from absl import flags

from tfnmt.cli import define_data_dir, not_utf_8, run
from tfnmt.data.corpora.catalog import data_folder
from tfnmt.data.preparation.tokenizer import Tokenizer
from tfnmt.errors import UsageError
from tfnmt.exporting.ctranslate2 import QUANTIZATIONS, check_export, export_ctranslate2
from tfnmt.loading.bundles import ENDING, write_bundle
from tfnmt.loading.card import make_card
from tfnmt.loading.models import RunModel, find_folder, find_run
from tfnmt.progress import say
from tfnmt.runtime.files import is_special
from tfnmt.runtime.startup import share_processors

FLAGS = flags.FlagValues()
flags.DEFINE_string("model", None, "the run to export", flag_values=FLAGS)
flags.DEFINE_string("output", None, "the folder of versions", flag_values=FLAGS)
flags.DEFINE_string("bundle", None, "pack the run into this .tar.gz", flag_values=FLAGS)
flags.DEFINE_integer("version", None, "its number (default: the next one)", 1, flag_values=FLAGS)
flags.DEFINE_integer("keep", None, "keep the newest N versions only", 1, flag_values=FLAGS)
flags.DEFINE_enum(
    "format", "saved_model", ["saved_model", "ctranslate2"], "what to write", flag_values=FLAGS
)
flags.DEFINE_enum(
    "quantization", None, list(QUANTIZATIONS), "of a CTranslate2 model (default: float32)",
    flag_values=FLAGS,
)  # fmt: skip
flags.DEFINE_string("licence", None, "terms of the training text, for the card", flag_values=FLAGS)
define_data_dir(FLAGS)


def main(values: Any, positional: list[str]) -> None:
    """Writes a version, a bundle, or both."""
    if positional or not (values.model and (values.output or values.bundle)):
        raise UsageError("--model, and --output or --bundle: needed; see --help")
    _check(values)
    model = find_run(find_folder(values.model))
    share_processors()  # the processes that check the export inherit it
    if values.bundle:
        _write_bundle(values, model)
    if values.output and values.format == "ctranslate2":
        _convert(values, model)
    elif values.output:
        _publish(values, model)


def _check(values: Any) -> None:
    """What is contradictory, or cannot be, is said at once."""
    if values.format == "ctranslate2":
        given = [name for name in ("version", "keep") if values[name].present]
        if values.output:
            check_export(Path(values.output))
    else:
        given = ["quantization"] if values.quantization else []
    problems = [f"--{name}: not with --format={values.format}" for name in given]
    problems += not_utf_8([values.licence or ""])
    if values.output and Path(values.output).is_file():
        problems.append(f"--output={values.output}: a file; name a folder")
    if values.bundle and not (values.bundle.endswith(ENDING) or is_special(Path(values.bundle))):
        problems.append(f"--bundle={values.bundle}: a bundle is a {ENDING}; name it so")
    if problems:
        raise UsageError(*problems)


def _convert(values: Any, model: RunModel) -> None:
    translator = model.load_translator()
    path = export_ctranslate2(
        translator.transformer,
        model.config,
        model.run.tokenizer_model(),
        make_card(model.run, model.config, model.step, values.licence),
        Path(values.output),
        values.quantization or QUANTIZATIONS[0],
    )
    say(f"exported {path}; its README.txt says how to translate with it")


def _write_bundle(values: Any, model: RunModel) -> None:
    write_bundle(
        model.run,
        make_card(model.run, model.config, model.step, values.licence),
        Path(values.bundle),
    )
    size = Path(values.bundle).stat().st_size / 1e6
    say(f"packed {values.bundle}, {size:.1f} MB; --model takes its URL, once it is on a server")


def _publish(values: Any, model: RunModel) -> None:
    translator = model.load_translator()
    from tfnmt.exporting import saved_model
    from tfnmt.exporting.parity import parity_texts

    folder = Path(values.output)
    path = folder / str(values.version or saved_model.next_version(folder))
    saved_model.check_free(path)
    if values.keep:
        saved_model.check_kept(path, values.keep)
    tokenizer = Tokenizer(model.run.tokenizer_model())
    texts = parity_texts(model.config, tokenizer, data_folder(values.data_dir))
    certificate = saved_model.publish(
        translator, make_card(model.run, model.config, model.step, values.licence), texts, path
    )
    say(
        f"parity: {certificate['texts']} texts, {certificate['calls']} calls, the same strings; "
        f"numbers to {max(certificate['largest_difference'].values()):.1e}; "
        f"{certificate['warm_up_requests']} warm-up requests"
    )
    if values.keep:
        for version in saved_model.remove_old(folder, values.keep):
            say(f"removed version {version}")
    say(f'exported {path}; try: python -m tfnmt.translate --model={values.output} "..."')


if __name__ == "__main__":
    run(main, FLAGS, __doc__)
