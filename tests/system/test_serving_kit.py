"""The files of the serving kit in export/: TensorFlow Serving can read them, and they agree."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from app.server.process import GRACE_SECONDS
from app.settings import parse

KIT = Path(__file__).parents[2] / "export"

BATCHING = {
    "max_batch_size",
    "batch_timeout_micros",
    "max_enqueued_batches",
    "num_batch_threads",
    "thread_pool_name",
    "enable_large_batch_splitting",
    "max_execution_batch_size",
    "allowed_batch_sizes",
    "pad_variable_length_inputs",
}
"""The fields of the server's BatchingParameters. No Python package contains their proto."""


def server_config(text: str) -> Any:
    return text_format.Parse(text, model_server_config_pb2.ModelServerConfig())


def fields(name: str) -> dict[str, int]:
    """Return the values of a file of `name { value: number }`."""
    text = re.sub("#.*", "", (KIT / name).read_text())
    found = re.findall(r"(\w+) \{ value: (\w+) \}", text)
    assert len(found) == text.count("{")
    return {field: int(value) if value.isdigit() else value for field, value in found}


@pytest.fixture(scope="module")
def service() -> dict[str, Any]:
    services = yaml.safe_load((KIT / "compose.yaml").read_text())["services"]
    return services["serving"]


@pytest.fixture(scope="module")
def app() -> dict[str, Any]:
    services = yaml.safe_load((KIT / "compose.yaml").read_text())["services"]
    assert set(services) == {"serving", "app"}
    return services["app"]


def test_compose_connects_the_application_to_the_served_model(
    service: dict[str, Any], app: dict[str, Any]
) -> None:
    (model,) = server_config((KIT / "models.config").read_text()).model_config_list.config
    port = service["ports"][1].rpartition(":")[2]
    found = parse(app["command"])
    assert found.backends == ((model.name, f"http://serving:{port}/v1/models/{model.name}"),)


def test_compose_restricts_the_application_and_gives_it_time_to_stop(app: dict[str, Any]) -> None:
    assert app["read_only"] is True
    assert app["cap_drop"] == ["ALL"]
    assert app["security_opt"] == ["no-new-privileges:true"]
    assert app["ports"] == ["127.0.0.1:8080:8080"]
    longest = GRACE_SECONDS + int(parse(app["command"]).deadline) + 1  # as in serve()
    assert int(app["stop_grace_period"].removesuffix("s")) > longest
    dockerfile = (KIT / "Dockerfile").read_text()
    assert re.search(r"^USER \d+:\d+$", dockerfile, re.M)
    assert (KIT.parent / app["build"]["dockerfile"]).is_file()


def test_application_image_has_the_files_of_the_wheel() -> None:
    lines = (KIT / "Dockerfile.dockerignore").read_text().splitlines()
    copied = {line.removeprefix("!") for line in lines if line.startswith("!")}
    project = tomllib.loads((KIT.parent / "pyproject.toml").read_text())
    folders = project["tool"]["setuptools"]["package-dir"].values()
    assert copied >= {"pyproject.toml", project["project"]["readme"], *folders}
    assert copied.issuperset(project["project"]["license-files"])


def test_application_process_does_not_import_tensorflow() -> None:
    code = "import sys, app.server.process; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=KIT.parent).returncode == 0


def test_models_config_uses_the_folder_that_compose_mounts(service: dict[str, Any]) -> None:
    (model,) = server_config((KIT / "models.config").read_text()).model_config_list.config
    assert model.name == "demo"
    assert model.base_path == "/models/demo"
    assert model.model_platform == "tensorflow"
    assert model.model_version_policy.latest.num_versions == 1
    mounts = {mount["target"]: mount for mount in service["volumes"]}
    assert mounts["/models"]["source"] == "./models"
    assert all(mount["read_only"] for mount in mounts.values())


def test_readme_canary_example_is_a_valid_configuration(service: dict[str, Any]) -> None:
    (example,) = re.findall(
        r"```\n(model_config_list .*?)```", (KIT / "README.md").read_text(), re.S
    )
    (model,) = server_config(example).model_config_list.config
    assert set(model.version_labels.values()) == set(model.model_version_policy.specific.versions)
    assert "--allow_version_labels_for_unavailable_models=true" in service["command"]


def test_batching_parameters_are_fields_of_the_server() -> None:
    values = fields("batching_parameters.txt")
    assert set(values) <= BATCHING
    assert values["max_execution_batch_size"] <= values["max_batch_size"]


def test_files_in_the_server_flags_exist(service: dict[str, Any]) -> None:
    files = [flag.partition("/etc/serving/")[2] for flag in service["command"] if "/etc/" in flag]
    assert files == ["models.config", "batching_parameters.txt", "monitoring.config"]
    assert all((KIT / file).is_file() for file in files)


def test_compose_restricts_the_server_and_opens_its_ports_to_localhost_only(
    service: dict[str, Any],
) -> None:
    assert service["read_only"] is True
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["cap_drop"] == ["ALL"]
    assert service["mem_limit"]
    assert service["ports"] == ["127.0.0.1:8500:8500", "127.0.0.1:8501:8501"]


def test_readme_uses_the_image_of_compose(service: dict[str, Any]) -> None:
    images = re.findall(r"tensorflow/serving:[\w.]+", (KIT / "README.md").read_text())
    assert images
    assert set(images) == {service["image"]}


def test_health_check_uses_the_path_of_the_metrics(service: dict[str, Any]) -> None:
    check = service["healthcheck"]["test"]
    path = re.search('path: "(.*)"', (KIT / "monitoring.config").read_text())[1]
    assert f"GET {path} HTTP" in check[-1]
    assert "curl" not in check[-1]


def test_clients_do_not_use_tfnmt() -> None:
    for client in (KIT / "clients").glob("*.py"):
        assert "tfnmt" not in client.read_text()
    assert (KIT / "clients" / "translate.sh").stat().st_mode & 0o111
    bash = shutil.which("bash")
    assert subprocess.run([bash, "-n", KIT / "clients" / "translate.sh"], check=True)
