"""Export a run: as a SavedModel for TensorFlow Serving, as a LiteRT file, or as a web page.

    python -m tfnmt.export --model=RUN --output=DIR [--version=N] [--keep=N]
    python -m tfnmt.export --model=RUN --bundle=F.tar.gz
    python -m tfnmt.export --model=RUN --output=DIR --format=litert [--quantization=int8]
    python -m tfnmt.export --model=RUN --output=DIR --format=ctranslate2 [--quantization=int8]
    python -m tfnmt.export --model=RUN --output=DIR --format=web [--litertjs=FOLDER]

DIR is the model base path. Writes DIR/<version>/; the default version is the next free number. The
version appears only when it is complete, and only if it reproduces the output of the run in a clean
process. A LiteRT file needs no TensorFlow; translate, evaluate and the web application accept both.
--format=web writes a folder for any file server: a page that translates in the browser. --model may
name a LiteRT export too. LiteRT.js is downloaded once with npm. --bundle writes the run itself as
one archive, or a LiteRT export if --model names one. translate, evaluate, score and export accept
its URL as --model.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from absl import flags

from tfnmt.cli import define_data_dir, non_utf8_problems, run_command
from tfnmt.data.corpora.catalog import data_folder
from tfnmt.data.preparation.tokenizer import Tokenizer
from tfnmt.errors import UsageError
from tfnmt.exporting import QUANTIZATIONS
from tfnmt.exporting.converted import check_convertible
from tfnmt.exporting.ctranslate2 import check_export, export_ctranslate2
from tfnmt.exporting.litertjs import PACKAGE, find_litertjs
from tfnmt.exporting.versions import (
    check_format,
    check_free,
    check_kept,
    next_version,
    remove_old,
)
from tfnmt.litert.files import GRAPHS
from tfnmt.loading import SUFFIX
from tfnmt.loading.bundles import litert_files, run_files, write_bundle
from tfnmt.loading.card import make_card
from tfnmt.loading.models import RunModel, find_folder, find_run, find_version
from tfnmt.progress import log
from tfnmt.runtime.files import check_empty, check_writable, exclusive, is_stream, remove_leftovers
from tfnmt.runtime.startup import configure_threads, import_tensorflow

FLAGS = flags.FlagValues()
flags.DEFINE_string(
    "model", None, "the run to export; for --bundle, also a LiteRT export", flag_values=FLAGS
)
flags.DEFINE_string("output", None, "the model base path, a folder of versions", flag_values=FLAGS)
flags.DEFINE_string("bundle", None, "write the model to this .tar.gz", flag_values=FLAGS)
flags.DEFINE_integer(
    "version", None, "the version (default: the next one)", 1, 2**63 - 1, flag_values=FLAGS
)
flags.DEFINE_integer("keep", None, "keep only the highest N versions", 1, flag_values=FLAGS)
flags.DEFINE_enum(
    "format",
    "saved_model",
    ["saved_model", "litert", "ctranslate2", "web"],
    "the format of --output",
    flag_values=FLAGS,
)
flags.DEFINE_enum(
    "quantization",
    None,
    list(QUANTIZATIONS),
    "type of the weights of a LiteRT or CTranslate2 model, a web page (default: int8) or a bundle "
    "(default: float32)",
    flag_values=FLAGS,
)
flags.DEFINE_string(
    "litertjs",
    None,
    f"for --format=web: the folder of the unpacked npm package {PACKAGE} (default: download it)",
    flag_values=FLAGS,
)
flags.DEFINE_string(
    "license",
    None,
    "terms of the training text, for the model card (default: those of the corpus)",
    flag_values=FLAGS,
)
define_data_dir(FLAGS)

UNSUPPORTED = {
    "saved_model": ("quantization", "litertjs"),
    "litert": ("litertjs",),
    "ctranslate2": ("version", "keep", "data_dir", "litertjs"),
    "web": ("version", "keep"),
}
"""Flags that a format does not support."""

OUTPUT_FLAGS = ("format", "version", "keep", "data_dir", "litertjs")
"""Flags that have no effect on --bundle."""


def main(values: Any, positional: list[str]) -> None:
    """Write a version, a bundle, or both."""
    if positional or not (values.model and (values.output or values.bundle)):
        raise UsageError("--model, and --output or --bundle: required; see --help")
    _check(values)
    folder = find_folder(values.model)
    version = find_version(folder)
    if version and (version / GRAPHS).is_file():
        if values.output and values.format == "web":
            _write_web_of_export(values, version)
            return
        if not values.output:
            _bundle_export(values, version)
            return
    model = find_run(folder)
    if values.output and values.format in ("litert", "web"):
        check_convertible(model)
    _check_folders(values, model)
    configure_threads()  # the clean processes of the parity check inherit it
    with _exclusive(values):
        if values.bundle:
            _bundle_run(values, model)
        if values.output and values.format == "ctranslate2":
            _convert(values, model)
        elif values.output and values.format == "web":
            _write_web_of_run(values, model)
        elif values.output:
            _publish(values, model)


@contextmanager
def _exclusive(values: Any) -> Iterator[None]:
    """Exclude other exports to the same place, and remove what killed ones left there."""
    places = []  # the folder in which the result appears, and its name there if it is known
    if values.bundle and not is_stream(Path(values.bundle)):
        bundle = Path(os.path.realpath(values.bundle))
        places.append((f"--bundle={values.bundle}", bundle.parent, bundle.name))
    if values.output:
        output = Path(os.path.realpath(values.output))
        in_parent = values.format in ("ctranslate2", "web")
        place = (output.parent, output.name) if in_parent else (output, "")
        places.append((f"--output={values.output}", *place))
    problem = "another process exports to this place; wait for it, or choose another one"
    with ExitStack() as locks:
        for flag, folder, name in places:
            locks.enter_context(exclusive(folder / f".{name or 'export'}.lock", flag, problem))
            remove_leftovers(folder, name)
        yield


def _check(values: Any) -> None:
    """Check the flags before the model is loaded."""
    if not values.output:
        given = [name for name in OUTPUT_FLAGS if values[name].present]
        problems = [f"--{name}: only for --output; omit it" for name in given]
        if values.quantization == "int8":
            problems.append("--quantization=int8: not for a bundle of a run; use float16")
    else:
        given = [name for name in UNSUPPORTED[values.format] if values[name].present]
        problems = [
            f"--{name}: not supported with --format={values.format}; omit it" for name in given
        ]
    if values.output and values.format == "ctranslate2":
        check_export(Path(values.output))
    if values.output and values.format == "web":
        check_empty(Path(values.output))
    problems += non_utf8_problems([values.license or ""])
    if values.output and os.path.isfile(values.output):
        problems.append(f"--output={values.output}: a file; choose a folder")
    if values.bundle and not (values.bundle.endswith(SUFFIX) or is_stream(Path(values.bundle))):
        problems.append(f"--bundle={values.bundle}: does not end in {SUFFIX}; rename it")
    if problems:
        raise UsageError(*problems)
    if values.bundle:
        check_writable(Path(values.bundle))


def _check_folders(values: Any, model: RunModel) -> None:
    """Refuse outputs that would change the run, or each other."""
    output = Path(values.output or "").resolve()
    run = model.run
    folders = (run.path, run.checkpoints().folder, run.best.folder, run.averaged.folder, run.logs)
    if values.output and output in (folder.resolve() for folder in folders):
        raise UsageError(f"--output={values.output}: a folder of the run; choose another folder")
    if values.output and values.bundle and Path(values.bundle).resolve() == output:
        raise UsageError(f"--bundle={values.bundle}: is the folder of --output; rename one of them")


def _card(values: Any, model: RunModel) -> dict[str, Any]:
    return make_card(model.run, model.config, model.step, values.license) | model.origin


def _convert(values: Any, model: RunModel) -> None:
    translator = model.load_translator()
    path = export_ctranslate2(
        translator.transformer,
        model.config,
        model.run.tokenizer_model(),
        _card(values, model),
        Path(values.output),
        values.quantization or QUANTIZATIONS[0],
    )
    log(f"exported {path}; its README.txt explains how to translate with it")


def _bundle_export(values: Any, version: Path) -> None:
    """Write a LiteRT export to a bundle."""
    _refuse_fixed(values)
    with _exclusive(values):
        _write_bundle(values, litert_files(version))


def _refuse_fixed(values: Any) -> None:
    """Refuse flags that change what an export has fixed."""
    given = [name for name in ("quantization", "license") if values[name].present]
    if given:
        raise UsageError(*(f"--{name}: fixed in an export; omit it" for name in given))


def _bundle_run(values: Any, model: RunModel) -> None:
    half_precision = values.quantization == "float16"
    card = _card(values, model) | {"quantization": "float16" if half_precision else "float32"}
    _write_bundle(values, run_files(model.run, card, half_precision))


def _write_bundle(values: Any, files: dict[str, bytes]) -> None:
    write_bundle(files, Path(values.bundle))
    size = Path(values.bundle).stat().st_size / 1e6
    log(f"wrote {values.bundle}, {size:.1f} MB; to use it, give --model the file or its URL")


def _publish(values: Any, model: RunModel) -> None:
    """Write a version of a SavedModel or of a LiteRT export."""
    folder = Path(values.output)
    path = folder / str(values.version or next_version(folder))
    check_free(path)
    check_format(folder, is_litert=values.format == "litert")
    if values.keep:
        check_kept(path, values.keep)
    write = _write_litert if values.format == "litert" else _write_saved_model
    write(values, model, path)
    if values.keep:
        for version in remove_old(folder, values.keep):
            log(f"removed version {version}")
    target = f" --target={model.config.data.target}" if model.targets else ""
    log(f'exported {path}; try: python -m tfnmt.translate --model={values.output}{target} "..."')


def _write_saved_model(values: Any, model: RunModel, path: Path) -> None:
    translator = model.load_translator()
    from tfnmt.exporting.saved_model import publish

    report = publish(translator, _card(values, model), _parity_texts(values, model), path)
    log(
        f"parity: {report['texts']} texts, {report['calls']} calls: equal strings, numbers within "
        f"{max(report['largest_difference'].values()):.1e}; "
        f"{report['warm_up_requests']} warm-up requests replayed"
    )


def _parity_texts(values: Any, model: RunModel) -> list[str]:
    from tfnmt.exporting.parity import parity_texts

    tokenizer = Tokenizer(model.tokenizer_model())
    return parity_texts(model.config, tokenizer, data_folder(values.data_dir))


def _write_litert(
    values: Any, model: RunModel, path: Path, quantization: str = QUANTIZATIONS[0]
) -> None:
    import_tensorflow()
    from tfnmt.exporting.litert import publish_litert
    from tfnmt.exporting.litert_parity import validation_pairs

    card = _card(values, model) | {"quantization": values.quantization or quantization}
    pairs = validation_pairs(model.config, data_folder(values.data_dir))
    report = publish_litert(model, card, _parity_texts(values, model), pairs, path)
    log(
        f"parity: {report['identical']} of {report['translations']} translations are those of the "
        f"run; {(path / GRAPHS).stat().st_size / 1e6:.1f} MB"
    )
    if "bleu_of_run" in report:
        log(
            f"validation BLEU on {report['sentences']:,} sentences: {report['bleu_of_export']}, "
            f"and {report['bleu_of_run']} of the run"
        )


def _write_web_of_run(values: Any, model: RunModel) -> None:
    """Convert a run and write a page that translates with it."""
    litertjs = find_litertjs(values.litertjs and Path(values.litertjs))
    with tempfile.TemporaryDirectory() as scratch:
        version = Path(scratch) / model.run.path.resolve().name
        _write_litert(values, model, version, "int8")
        _write_web(version, litertjs, Path(values.output))


def _write_web_of_export(values: Any, version: Path) -> None:
    """Write a page that translates with a LiteRT export."""
    _refuse_fixed(values)
    litertjs = find_litertjs(values.litertjs and Path(values.litertjs))
    with _exclusive(values):
        if values.bundle:
            _write_bundle(values, litert_files(version))
        _write_web(version, litertjs, Path(values.output))


def _write_web(version: Path, litertjs: Path, folder: Path) -> None:
    from tfnmt.exporting.web import export_web

    size = export_web(version, litertjs, folder) / 1e6
    log(f"exported {folder}; browsers load {size:.1f} MB")
    log(f"try: python -m http.server --bind=127.0.0.1 --directory={folder}")


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
