"""The manifests in export/kubernetes/: the API's schemas accept them, and they agree with the
commands and with the other files of the serving kit."""

import copy
import json
import shutil
import subprocess
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from app.server.process import GRACE_SECONDS
from app.settings import parse

KIT = Path(__file__).parents[2] / "export"
FOLDERS = sorted(path.name for path in (KIT / "kubernetes").iterdir() if path.is_dir())
VERSIONS = ("1.29", "1.37")
"""The oldest and the newest version of Kubernetes whose schemas the manifests are checked with."""

Manifest = dict[str, Any]


@pytest.fixture(scope="module")
def kubectl() -> str:
    path = shutil.which("kubectl")
    if path is None:
        pytest.skip("kubectl: not installed")
    version = subprocess.run([path, "version", "--client", "-o", "json"], capture_output=True)
    if "kustomizeVersion" not in json.loads(version.stdout):
        pytest.skip("kubectl: older than 1.24, whose kustomize does not know all fields")
    return path


def build(kubectl: str, folder: str) -> list[Manifest]:
    """Return the manifests of a kustomization."""
    command = [kubectl, "kustomize", str(KIT / "kubernetes" / folder)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert not built.stderr
    return list(yaml.safe_load_all(built.stdout))


def find(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    (found,) = (
        manifest
        for manifest in manifests
        if (manifest["kind"], manifest["metadata"]["name"]) == (kind, name)
    )
    return found


def pods(manifests: list[Manifest]) -> Iterator[Manifest]:
    """Yield the pod templates."""
    return (each["spec"]["template"] for each in manifests if each["kind"] in ("Deployment", "Job"))


def container(manifests: list[Manifest], kind: str, name: str) -> dict[str, Any]:
    (found,) = find(manifests, kind, name)["spec"]["template"]["spec"]["containers"]
    return found


@pytest.fixture(scope="module")
def serving(kubectl: str) -> list[Manifest]:
    return build(kubectl, "serving")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load((KIT / "compose.yaml").read_text())["services"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_manifests_follow_the_schemas_of_kubernetes(kubectl: str, folder: str) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    manifests = build(kubectl, folder)
    assert manifests
    for manifest in manifests:
        for version in VERSIONS:
            kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize("folder", FOLDERS)
def test_pods_run_without_rights(kubectl: str, folder: str) -> None:
    for pod in pods(build(kubectl, folder)):
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["spec"]["automountServiceAccountToken"] is False
        for each in pod["spec"]["containers"]:
            assert each["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"cpu", "memory"} <= set(each["resources"]["requests"])
            assert each["resources"]["limits"]["memory"] == each["resources"]["requests"]["memory"]
            assert "latest" not in each["image"]
            assert ":" in each["image"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_names_in_manifests_exist(kubectl: str, folder: str) -> None:
    manifests = build(kubectl, folder)
    assert {each["metadata"].get("namespace") for each in manifests} <= {None, "tfnmt"}
    claims = {each["metadata"]["name"] for each in manifests if each["kind"].endswith("Claim")}
    labels = [pod["metadata"]["labels"] for pod in pods(manifests)]
    for manifest in manifests:
        spec = manifest.get("spec", {})
        if selector := spec.get("selector", spec.get("podSelector")):
            assert selector.get("matchLabels", selector) in labels
    for pod in pods(manifests):
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        claimed = [volume.get("persistentVolumeClaim") for volume in volumes.values()]
        assert claims.issuperset(claim["claimName"] for claim in claimed if claim)
        for each in pod["spec"]["containers"]:
            assert {mount["name"] for mount in each["volumeMounts"]} == set(volumes)


@pytest.mark.parametrize("name", ["app", "serving"])
def test_service_has_probes_and_survives_a_drained_node(serving: list[Manifest], name: str) -> None:
    deployment = find(serving, "Deployment", name)["spec"]
    assert deployment["replicas"] >= 2
    budget = find(serving, "PodDisruptionBudget", name)["spec"]
    assert budget["selector"] == deployment["selector"]
    assert budget["maxUnavailable"] < deployment["replicas"]
    served = container(serving, "Deployment", name)
    ports = {port["name"] for port in served["ports"]}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert served[probe]["httpGet"]["port"] in ports
    (service,) = find(serving, "Service", name)["spec"]["ports"]
    assert service["targetPort"] in ports


def test_application_finds_the_served_model(serving: list[Manifest]) -> None:
    (model,) = text_format.Parse(
        (KIT / "models.config").read_text(), model_server_config_pb2.ModelServerConfig()
    ).model_config_list.config
    (service,) = find(serving, "Service", "serving")["spec"]["ports"]
    settings = parse(container(serving, "Deployment", "app")["args"])
    url = f"http://serving:{service['port']}/v1/models/{model.name}"
    assert settings.backends == ((model.name, url),)
    mounts = container(serving, "Deployment", "serving")["volumeMounts"]
    assert Path(model.base_path).parent in [Path(mount["mountPath"]) for mount in mounts]


def test_application_has_time_to_answer_after_sigterm(serving: list[Manifest]) -> None:
    served = container(serving, "Deployment", "app")
    _, pause = served["lifecycle"]["preStop"]["exec"]["command"]
    longest = int(pause) + GRACE_SECONDS + parse(served["args"]).deadline + 1  # as in serve()
    pod = find(serving, "Deployment", "app")["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > longest


def test_probes_of_the_application_are_its_health_checks(serving: list[Manifest]) -> None:
    served = container(serving, "Deployment", "app")
    probes = ("startupProbe", "readinessProbe", "livenessProbe")
    assert [served[each]["httpGet"]["path"] for each in probes] == ["/livez", "/readyz", "/livez"]


def test_server_has_the_image_and_flags_of_compose(
    serving: list[Manifest], compose: dict[str, Any]
) -> None:
    served = container(serving, "Deployment", "serving")
    assert served["args"] == compose["serving"]["command"]
    assert served["image"] == compose["serving"]["image"]
    assert {each["name"]: each["value"] for each in served["env"]} == compose["serving"][
        "environment"
    ]


def test_only_the_application_reaches_the_server(serving: list[Manifest]) -> None:
    policy = find(serving, "NetworkPolicy", "serving")["spec"]
    assert policy["egress"] == []
    assert policy["ingress"] == [
        {"from": [{"podSelector": {"matchLabels": {"app": "app"}}}], "ports": [{"port": "rest"}]}
    ]


@pytest.mark.parametrize(("folder", "name"), [("training", "train"), ("training", "export")])
def test_jobs_run_commands_with_known_flags(kubectl: str, folder: str, name: str) -> None:
    program, verb, *flags = container(build(kubectl, folder), "Job", name)["command"]
    assert (program, verb) == ("tfnmt", name)
    values = copy.deepcopy(import_module(f"tfnmt.{verb}").FLAGS)
    assert values([program, *flags]) == [program]


def test_export_waits_for_the_run_and_writes_where_the_server_reads(
    kubectl: str, serving: list[Manifest]
) -> None:
    training = build(kubectl, "training")
    assert find(training, "Job", "export")["spec"]["suspend"] is True
    train, export = (container(training, "Job", name)["command"] for name in ("train", "export"))
    run = next(flag for flag in train if flag.startswith("--run_dir=")).partition("=")[2]
    assert f"--model={run}" in export
    config = (KIT / "models.config").read_text()
    output = next(flag for flag in export if flag.startswith("--output=")).partition("=")[2]
    assert f'base_path: "{output}"' in config
    assert find(training, "PersistentVolumeClaim", "models") in serving


@pytest.mark.parametrize(
    ("folder", "kind", "name"),
    [("training-gpu", "Job", "train"), ("serving-gpu", "Deployment", "serving")],
)
def test_gpu_variant_changes_only_what_a_gpu_needs(
    kubectl: str, folder: str, kind: str, name: str
) -> None:
    plain = build(kubectl, folder.removesuffix("-gpu"))
    changed = build(kubectl, folder)
    assert container(changed, kind, name)["resources"]["limits"].pop("nvidia.com/gpu") == "1"
    assert "gpu" in container(changed, kind, name)["image"]
    for manifests in (plain, changed):
        workload = find(manifests, kind, name)["spec"]
        workload.pop("strategy", None)
        workload["template"]["spec"].pop("tolerations", None)
        for pod in pods(manifests):
            for each in pod["spec"]["containers"]:
                del each["image"]
    assert changed == plain


def test_workers_find_each_other(kubectl: str) -> None:
    manifests = build(kubectl, "training-workers")
    job = find(manifests, "Job", "train")["spec"]
    service = find(manifests, "Service", "train")
    assert service["spec"]["clusterIP"] == "None"
    assert job["template"]["spec"]["subdomain"] == service["metadata"]["name"]
    assert job["completionMode"] == "Indexed"
    env = {
        each["name"]: each.get("value", "") for each in container(manifests, "Job", "train")["env"]
    }
    assert list(env).index("INDEX") < list(env).index("TF_CONFIG")
    (port,) = service["spec"]["ports"]
    config = json.loads(env["TF_CONFIG"].replace("$(INDEX)", "1"))
    assert config["task"] == {"type": "worker", "index": 1}
    assert config["cluster"]["worker"] == [
        f"train-{index}.train:{port['port']}" for index in range(job["completions"])
    ]
    (rule,) = find(manifests, "NetworkPolicy", "train")["spec"]["ingress"]
    assert rule["ports"] == [{"port": port["port"]}]
