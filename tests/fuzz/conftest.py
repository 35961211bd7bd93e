"""The settings of the property-based tests in this folder.

The suite runs a few examples per test, the same ones each time. With TFNMT_FUZZ_SECONDS=N, as in
`make fuzz`, each test tries new random examples for N seconds. To keep a failing example, add it
to its test as `@example(...)`.
"""

import os
import time
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

SECONDS = float(os.environ.get("TFNMT_FUZZ_SECONDS", "0"))

# A busy machine generates examples slowly. Each example overwrites the files of the one before it,
# so the examples of a test can share a temporary folder.
SUPPRESSED = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture)

settings.register_profile(
    "suite",
    max_examples=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=SUPPRESSED,
)
settings.register_profile(
    "fuzz", max_examples=100, deadline=None, print_blob=True, suppress_health_check=SUPPRESSED
)
settings.load_profile("fuzz" if SECONDS else "suite")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Repeat a property-based test until its time is over, or until it fails."""
    end = time.monotonic() + SECONDS
    result = yield
    if hasattr(pyfuncitem.obj, "is_hypothesis_test"):
        # Names of fixtures and parameters, without the arguments that hypothesis generates.
        names = pyfuncitem._fixtureinfo.argnames
        arguments = {name: pyfuncitem.funcargs[name] for name in names}
        while time.monotonic() < end:
            pyfuncitem.obj(**arguments)
    return result
