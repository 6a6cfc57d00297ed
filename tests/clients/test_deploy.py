"""The example for Kubernetes: whether it is YAML, and whether its parts fit together."""

from pathlib import Path

import pytest
import yaml

EXAMPLE = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes.yaml"


@pytest.fixture
def objects():
    """The objects of the example, by their kind."""
    documents = list(yaml.safe_load_all(EXAMPLE.read_text()))
    by_kind = {document["kind"]: document for document in documents}
    assert len(by_kind) == len(documents), "a kind is there twice"
    return by_kind


def test_the_service_reaches_the_pods(objects):
    service, deployment = objects["Service"]["spec"], objects["Deployment"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert service["selector"] == deployment["selector"]["matchLabels"] == labels
    ports = {port["name"]: port["containerPort"] for port in container(objects)["ports"]}
    assert {port["targetPort"] for port in service["ports"]} <= set(ports)
    arguments = container(objects)["args"]
    assert str(ports["http"]) == arguments[arguments.index("--port") + 1]
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"]:
        assert container(objects)[probe]["httpGet"]["port"] in ports


def test_volumes_are_those_that_are_mounted(objects):
    volumes = {volume["name"]: volume for volume in objects["Deployment"]["spec"]["template"]["spec"]["volumes"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in container(objects)["volumeMounts"]}
    assert set(volumes) == set(mounts)
    assert volumes["keys"]["secret"]["secretName"] == objects["Secret"]["metadata"]["name"]
    claim = volumes["models"]["persistentVolumeClaim"]["claimName"]
    assert claim == objects["PersistentVolumeClaim"]["metadata"]["name"]
    file = Path(container(objects)["args"][container(objects)["args"].index("--key-file") + 1])
    assert str(file.parent) == mounts["keys"] and file.name in objects["Secret"]["stringData"]


def test_the_pod_ends_after_the_server_has_drained(objects):
    pod, arguments = objects["Deployment"]["spec"]["template"]["spec"], container(objects)["args"]
    drain = int(arguments[arguments.index("--drain-timeout") + 1])
    pause = container(objects)["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] > pause + drain + 7


def container(objects):
    (only,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    return only
