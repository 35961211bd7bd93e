"""The packages of an installation."""

from collections import defaultdict

import pytest

from tfnmt.errors import UserError
from tfnmt.runtime.packages import EXTRAS, is_installed, report_missing_packages, requirements


@pytest.mark.parametrize("extra", ["", "app"])
def test_translating_and_serving_need_no_tensorflow(extra: str) -> None:
    names = {each.name for each in requirements(extra)}
    assert {"": "ai-edge-litert", "app": "fastapi"}[extra] in names
    assert not {name for name in names if name.startswith(("tensor", "keras"))}


@pytest.mark.parametrize("extra", EXTRAS)
def test_package_that_shows_an_extra_belongs_to_it_alone(extra: str) -> None:
    found = [other for other in ("", *EXTRAS) if EXTRAS[extra] in _ranges(other)]
    assert found == [extra]
    assert is_installed(EXTRAS[extra])


def test_package_of_several_extras_has_one_range() -> None:
    ranges = defaultdict(set)
    for extra in ("", *EXTRAS):
        for name, supported in _ranges(extra).items():
            ranges[name].add(supported)
    assert {name: found for name, found in ranges.items() if len(found) > 1} == {}


def _ranges(extra: str) -> dict[str, str]:
    return {each.name: str(each.specifier) for each in requirements(extra)}


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("tensorflow", "train"),
        ("tensorflow_serving", "train"),
        ("keras_nlp", "train"),
        ("babel", "train"),
        ("prometheus_client", "app"),
        ("ctranslate2", "ctranslate2"),
    ],
)
def test_missing_package_is_reported_with_its_extra(module: str, extra: str) -> None:
    with pytest.raises(UserError) as caught, report_missing_packages():
        raise ModuleNotFoundError(name=module)
    assert str(caught.value) == f"{module}: not installed; run pip install 'tfnmt[{extra}]'"


@pytest.mark.parametrize("module", ["numpy", "tensorflow.no_such_module", "keras_n", "elsewhere"])
def test_other_missing_module_keeps_its_error(module: str) -> None:
    with pytest.raises(ModuleNotFoundError), report_missing_packages():
        raise ModuleNotFoundError(name=module)
