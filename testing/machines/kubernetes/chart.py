#!/usr/bin/env python3
"""The Helm chart of dist/kubernetes/helm: Helm renders from it what kubectl makes of the Kustomize manifests, and it fits the schemas.

    chart.py [FOLDER]    helm and kubectl are in FOLDER or on the path

Needs PyPI's kubernetes-validate. Exit code 77: something of that is not there."""
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import yaml
    import kubernetes_validate  # noqa: F401
except ImportError as lacks:
    print(f"{lacks.name} is not there: pip install kubernetes-validate")
    sys.exit(77)

MANIFESTS = Path(__file__).resolve().parents[3] / "dist/kubernetes"
CHART = MANIFESTS / "helm"
SCHEMAS = "1.36"
POLICY = "admissionregistration.k8s.io/{}/MutatingAdmissionPolicy"
TAINT = "xsched.dev/not-ready"
# Labels of Helm's own.
OF_HELM = ("app.kubernetes.io/managed-by", "helm.sh/chart")
OTHER_VALUES = """
image: {repository: registry.test/xsched, tag: next, pullPolicy: Always}
imagePullSecrets: [secret]
nodeSelector: {pool: gpu}
tolerations: [{key: own, operator: Exists}]
runtimeClassName: nvidia
priorityClassName: own
resources: {injector: {limits: {memory: 1Gi}}}
config: |
  policy = "fair"
metricsPort: 9500
oneClass: false
priorityClasses: true
restartMissed: true
"""


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(text):
    return [found for found in yaml.safe_load_all(text) if found]


def named(all_of_them):
    """By kind and name, without what is Helm's or Kustomize's alone."""
    found = {}
    for one in all_of_them:
        metadata = one["metadata"]
        for label in OF_HELM:
            metadata.get("labels", {}).pop(label, None)
        if one["kind"] == "ConfigMap":
            metadata["name"] = "xsched"
        if one["kind"] == "DaemonSet":
            pod = one["spec"]["template"]
            pod["metadata"]["annotations"].pop("checksum/config", None)
            for volume in pod["spec"]["volumes"]:
                if "configMap" in volume:
                    volume["configMap"]["name"] = "xsched"
        found[one["kind"], metadata["name"]] = one
    return found


def fits(at, text, schemas=SCHEMAS):
    """Whether each object fits the published schemas; how many there are."""
    file = at / "rendered.yaml"
    file.write_text(text)
    said = run(sys.executable, "-m", "kubernetes_validate", "-k", schemas, "--strict", file)
    count = len(objects(text))
    assert said.count(" passed for resource ") == count, said
    return count


def containers(rendered):
    pod = rendered["DaemonSet", "xsched-node"]["spec"]["template"]["spec"]
    return pod, {one["name"]: one for one in pod["initContainers"] + pod["containers"]}


def main(at):
    # The last namespace counts.
    helm = lambda chart, *options: run("helm", "template", "xsched", chart, "--namespace", "xsched", *options)
    run("helm", "lint", "--strict", CHART)
    text = helm(CHART)
    rendered, base = named(objects(text)), named(objects(run("kubectl", "kustomize", MANIFESTS / "base")))
    # A chart leaves the namespace to `helm install`.
    del base["Namespace", "xsched"]
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    for one in containers(base)[1].values():
        assert one["image"] == "xsched"
        one["image"] += ":" + version
    assert rendered == base, [key for key in rendered.keys() | base.keys() if rendered.get(key) != base.get(key)]
    print(f"as Kustomize has it: {len(rendered)} objects; {fits(at, text)} fit the schemas of {SCHEMAS}")

    values = at / "values.yaml"
    values.write_text(OTHER_VALUES)
    # What a cluster serves decides the version of the admission policy: both in passing, the beta before.
    beta, both, served = (["--api-versions", ",".join(POLICY.format(v) for v in versions)] for versions in (["v1beta1"], ["v1", "v1beta1"], ["v1"]))
    before = helm(CHART, "--values", values, *beta)
    text = helm(CHART, "--values", values, *both)
    assert text == helm(CHART, "--values", values, *served)
    policies = lambda rendered: {one["apiVersion"].split("/")[1] for one in objects(rendered) if one["kind"].startswith("Mutating")}
    assert (policies(before), policies(text)) == ({"v1beta1"}, {"v1"}), (policies(before), policies(text))
    fits(at, before, "1.35")
    rendered = named(objects(text))
    pod, each = containers(rendered)
    assert {(one["image"], one["imagePullPolicy"]) for one in each.values()} == {("registry.test/xsched:next", "Always")}
    assert pod["imagePullSecrets"] == [{"name": "secret"}] and pod["nodeSelector"] == {"pool": "gpu"}
    assert pod["tolerations"] == [{"key": "own", "operator": "Exists"}]
    assert (pod["runtimeClassName"], pod["priorityClassName"]) == ("nvidia", "own")
    assert each["injector"]["resources"] == {"limits": {"memory": "1Gi"}}
    assert each["daemon"]["resources"] == containers(base)[1]["daemon"]["resources"]
    assert each["injector"]["args"] == containers(base)[1]["injector"]["args"] + ["--restart-missed"]
    assert each["injector"]["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["KILL"]}
    assert [each[name]["ports"][0]["containerPort"] for name in ("device-plugin", "injector")] == [9496, 9497]
    assert each["daemon"]["ports"] == [{"name": "metrics", "containerPort": 9500}]
    data = rendered["ConfigMap", "xsched"]["data"]
    assert data["config.toml"] == 'policy = "fair"\n'
    assert data["kubernetes.toml"] == base["ConfigMap", "xsched"]["data"]["kubernetes.toml"]
    classes = {(one["kind"], one["metadata"]["name"]) for one in objects(run("kubectl", "kustomize", MANIFESTS / "priority-classes"))}
    assert rendered.keys() == classes | {("ServiceAccount", "xsched-node"), ("ConfigMap", "xsched"), ("DaemonSet", "xsched-node")}
    print(f"with other values: {fits(at, text)} objects fit")

    # Each of both values adds what its overlay of Kustomize adds, and both together what that of the taint is.
    text = helm(CHART, "--set", "startupTaint=true,restartMissed=true")
    tainted, overlay = named(objects(text)), named(objects(run("kubectl", "kustomize", MANIFESTS / "startup-taint")))
    del overlay["Namespace", "xsched"]
    for one in containers(overlay)[1].values():
        one["image"] += ":" + version
    # Kustomize moves the container that an overlay changes to the front.
    for pod in containers(tainted)[0], containers(overlay)[0]:
        pod["containers"].sort(key=lambda one: one["name"])
    assert tainted == overlay, [key for key in tainted.keys() | overlay.keys() if tainted.get(key) != overlay.get(key)]
    assert len(tainted) == len(named(objects(helm(CHART)))) + 4
    fits(at, text)
    # In another namespace the account is that one's, and other tolerations are beside the taint's.
    elsewhere = helm(CHART, "--set", "startupTaint=true", "--namespace", "gpu", "--values", values, *served)
    tainted = named(objects(elsewhere))
    pod, each = containers(tainted)
    assert pod["tolerations"] == [{"key": "own", "operator": "Exists"}, {"key": TAINT, "operator": "Exists"}]
    assert each["startup-taint"]["image"] == "registry.test/xsched:next" and "add" not in each["startup-taint"]["securityContext"]["capabilities"]
    assert tainted["ClusterRoleBinding", "xsched-startup-taint"]["subjects"][0]["namespace"] == "gpu"
    [condition] = tainted["ValidatingAdmissionPolicy", "xsched-startup-taint"]["spec"]["matchConditions"]
    assert condition["expression"] == "request.userInfo.username == 'system:serviceaccount:gpu:xsched-node'"
    print(f"with the startup taint: {fits(at, elsewhere)} objects fit, and are those of its overlay")

    run("helm", "package", CHART, "--destination", at)
    [package] = at.glob("xsched-*.tgz")
    assert helm(package, "--set", "startupTaint=true", "--namespace", "gpu", "--values", values, *served) == elsewhere
    print("the packaged chart renders the same: " + package.name)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        os.environ["PATH"] = os.path.abspath(sys.argv[1]) + ":" + os.environ["PATH"]
    missing = [program for program in ("helm", "kubectl") if not shutil.which(program)]
    if missing:
        print(f"needs {' and '.join(missing)}")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="xsched-chart-") as folder:
        main(Path(folder))
