"""The OpenAPI description, and a client that is generated from it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.system.conftest import App

PROGRAM = """
import importlib, pkgutil, sys, translation
for module in pkgutil.walk_packages(translation.__path__, "translation."):
    importlib.import_module(module.name)

from translation import AuthenticatedClient
from translation.api.libre_translate import libretranslate
from translation.api.translation import models, translate
from translation.models import LibreTranslateRequest, TranslateRequest

with AuthenticatedClient(sys.argv[1], token=sys.argv[2], httpx_args={"trust_env": False}) as client:
    answer = translate.sync(client=client, body=TranslateRequest(["One.", "Two."], alternatives=1))
    print(*(translation.text for translation in answer.translations))
    form = LibreTranslateRequest("Three.", "de")
    print(libretranslate.sync(client=client, body=form).translated_text)
    print(models.sync(client=client).models[0].name)
    wrong = translate.sync_detailed(client=client, body=TranslateRequest("a", model="nosuch"))
    print(wrong.status_code.value, wrong.parsed.error.code)
"""


def test_generated_client_translates(server: App, tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_bytes(server.get("/spec").content)
    (tmp_path / "config.yaml").write_text("post_hooks: []")
    generate = "--path=spec.json --meta=none --output-path=translation --config=config.yaml"

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "arning" not in run("-m", "openapi_python_client", "generate", *generate.split())
    printed = run("-c", PROGRAM, server.url, "one-key").splitlines()
    assert printed == ["One. Two.", "Three.", "fake", "404 no_such_model"]


@pytest.fixture(scope="module")
def spec(server: App) -> Any:
    return server.get("/spec").json()


def operations(spec: Any) -> dict[str, Any]:
    return {
        operation["operationId"]: operation
        for methods in spec["paths"].values()
        for operation in methods.values()
    }


def test_operations_have_short_ids(spec: Any) -> None:
    assert set(operations(spec)) == {
        *("translate", "align", "attention", "create_suggestion", "models"),
        *("create_document", "document_state", "document_content", "delete_document"),
        *("libretranslate", "detect", "suggest", "languages", "frontend_settings"),
        *("translate_file", "download_file"),
        *("livez", "readyz", "health", "read_metrics"),
    }


def test_schemas_have_different_titles(spec: Any) -> None:
    titles = [schema["title"] for schema in spec["components"]["schemas"].values()]
    assert sorted(titles) == sorted(set(titles))


def test_operations_that_check_keys_have_security(spec: Any) -> None:
    assert set(spec["components"]["securitySchemes"]) == {"bearer", "header"}
    for name, operation in operations(spec).items():
        required = operation.get("security")
        assert required == (
            [{"bearer": []}, {"header": []}]
            if {"401", "403"} & operation["responses"].keys()
            else None
        ), name
    assert operations(spec)["translate"]["security"]
    assert operations(spec)["libretranslate"]["security"]


def test_responses_have_headers(spec: Any) -> None:
    for operation in operations(spec).values():
        for status, response in operation["responses"].items():
            assert "X-Request-Id" in response["headers"]
            assert ("Retry-After" in response["headers"]) == (status in ("429", "503"))
