"""Finding texts: which files and folders belong together, and in which direction."""

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from tfnmt.data.corpora.formats import FORMATS, Aligned, Format, Text
from tfnmt.data.corpora.languages import contradicts, is_code, matches, subtags
from tfnmt.data.corpora.text_files import decompressed_name
from tfnmt.errors import UsageError, UserError
from tfnmt.progress import log
from tfnmt.runtime.files import is_stream

SHOWN = 5
"""Names in a message about the files of a folder."""


def find_texts(names: Sequence[str | Path], source: str, target: str) -> tuple[Text, ...]:
    """Return the texts in files and folders, in order.

    Args:
        names: Files and folders. Two aligned files follow each other.
        source: The source language.
        target: The target language.

    Raises:
        UsageError: An aligned file has no second file, two files are in other languages, or a file
            can be read only once.
        UserError: A folder contains no text.
    """
    texts: list[Text] = []
    for first, *second in _groups(names):
        if second:
            texts.append(_aligned(first, second[0], source, target))
        elif open_format := _format(first):
            texts.append(open_format(first, source, target))
        else:
            texts += _in_folder(first, source, target)
    return tuple(texts)


def find_languages(
    names: Sequence[str | Path], source: str | None, target: str | None
) -> tuple[str, str] | None:
    """Return (source, target), completed by the suffixes of the first two files if aligned.

    Args:
        names: Files and folders, as in `find_texts`.
        source: The source language if given.
        target: The target language if given.

    Returns:
        The languages, or None if one is unknown.

    Raises:
        UsageError: The names are not usable, as in `find_texts`.
    """
    first_group, *_ = [*_groups(names), []]
    if source and target:
        return source, target
    suffixes = _language_suffixes(*first_group) if len(first_group) == 2 else ("", "")
    first, second = (suffix.replace("-", "_") for suffix in suffixes)
    if first == second or not (first.isidentifier() and second.isidentifier()):
        return None
    if source:
        return source, first if matches(second, source, first) else second
    if target:
        return second if matches(first, target, second) else first, target
    return first, second


def _groups(names: Sequence[str | Path]) -> Iterator[list[Path]]:
    """Yield names that belong together: a folder, a file with both sides, or two aligned files."""
    rest = iter(names)
    for name in rest:
        group = [_usable(name)]
        if _is_line_file(group[0]):
            second = next(rest, None)
            if second is None or not _is_line_file(_usable(second)):
                missing = "the second aligned file is missing"
                if not os.path.lexists(name):
                    missing = f"no such file or folder, and {missing}"
                raise UsageError(
                    f"{name}: {missing}; name two aligned files, or a .tsv, .csv, .jsonl or .tmx "
                    "file"
                )
            group.append(Path(second))
        yield group


def _usable(name: str | Path) -> Path:
    """Return a name as a path. Raise a UsageError if it is empty, or can be read only once."""
    if not str(name):
        raise UsageError("an empty file name in a list of files; remove extra commas")
    if is_stream(Path(name)):
        raise UsageError(
            f"{name}: a pipe or a device, but the text is read several times; write it to a file"
        )
    return Path(name)


def _is_line_file(path: Path) -> bool:
    return not os.path.isdir(path) and _format(path) is None


def _format(path: Path) -> Format | None:
    """Return the format with both sides in one file that a name stands for, if any."""
    return None if os.path.isdir(path) else FORMATS.get(decompressed_name(path).suffix.lower())


# --- Two aligned files ----------------------------------------------------------------------------


def _aligned(first: Path, second: Path, source: str, target: str) -> Aligned:
    """Return two aligned files in the order that their suffixes tell, or else as they are named."""
    languages = _language_suffixes(first, second)
    forwards = _evidence(*languages, source, target)
    backwards = _evidence(*languages[::-1], source, target)
    contradictions, matching = max(forwards, backwards)
    # Equal suffixes may be anything, such as .aa of `split`, unless they are a language of the run.
    if contradictions and all(map(is_code, languages)) and (len(set(languages)) == 2 or matching):
        raise UsageError(
            f"{first}, {second}: the suffixes name {' and '.join(languages)}, but the languages "
            f"are {source} and {target}; correct --source and --target, or rename the files"
        )
    files = (second, first) if backwards > forwards else (first, second)
    return Aligned(*files, (source, target))


def _language_suffixes(first: Path, second: Path) -> tuple[str, str]:
    """Return the last suffixes of two files, or those in front of equal ones if they are codes.

    So `my.en` and `my.de`, `my.en.gz` and `my.de.gz`, `my.en.txt` and `my.de.txt` give en and de.
    """
    names = [decompressed_name(path) for path in (first, second)]
    last = _suffix(names[0]), _suffix(names[1])
    while names[0].suffix and names[0].suffix == names[1].suffix:
        names = [name.with_suffix("") for name in names]
    inner = _suffix(names[0]), _suffix(names[1])
    return inner if all(map(is_code, inner)) else last


def _suffix(path: Path) -> str:
    return path.suffix.removeprefix(".")


def _evidence(first: str, second: str, source: str, target: str) -> tuple[int, int]:
    """Return how well suffixes fit the source and the target: minus contradictions, matches."""
    sides = (first, source, target), (second, target, source)
    return (
        -sum(contradicts(*side) for side in sides),
        sum(matches(*side) for side in sides),
    )


# --- Folders --------------------------------------------------------------------------------------


def _in_folder(folder: Path, source: str, target: str) -> list[Text]:
    """Return the texts of a folder and log its other files and folders.

    An uncompressed file takes precedence over its .gz.
    """
    entries = _list(folder)
    files: dict[str, Path] = {}
    for path in entries:
        if os.path.isfile(path):
            files.setdefault(decompressed_name(path).name, path)
    sources = _line_files(files.values(), source, target)
    targets = _line_files(files.values(), target, source)
    texts: list[Text] = []
    for name, path in files.items():
        stem = Path(name).stem
        if open_format := _format(path):
            texts.append(open_format(path, source, target))
        elif sources.get(stem) == path and stem in targets:
            texts.append(Aligned(path, targets[stem], (source, target)))
    read = {path for text in texts for path in text.paths}
    alone = {*sources.values(), *targets.values()} - read
    skipped = _describe([path for path in entries if path not in read], alone)
    if not texts:
        raise UserError(
            f"{folder}: contains no text{f' (only {skipped})' if skipped else ''}; add .tsv, .csv, "
            f".jsonl or .tmx files, or two aligned files such as train.{source} and train.{target}"
        )
    if skipped:
        log(f"{folder}: does not read {skipped}; to read more, name files and folders in --train")
    return texts


def _list(folder: Path) -> list[Path]:
    """Return the visible files and folders in a folder, sorted."""
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror}; choose a readable folder") from error


def _line_files(paths: Iterable[Path], language: str, other: str) -> dict[str, Path]:
    """Return the line files in a language by their names without the language."""
    found: dict[str, Path] = {}
    for path in paths:
        name = decompressed_name(path)
        suffix = _suffix(name)
        if not suffix or _format(path) or not matches(suffix, language, other):
            continue
        if name.stem not in found or subtags(suffix) == subtags(language):
            found[name.stem] = path
    return found


def _describe(paths: Sequence[Path], alone: Collection[Path]) -> str:
    """Return the names of files and folders, and why the important ones among them are not read."""
    named = [f"{path.name} (no translation)" for path in paths if path in alone]
    named += [f"{path.name} (a folder)" for path in paths if path.is_dir()]
    named += [path.name for path in paths if path not in alone and not path.is_dir()]
    more = len(named) - SHOWN
    return ", ".join([*named[:SHOWN], *([f"{more} more"] if more > 0 else [])])
