//! The manifests of `dist/kubernetes`: rendered by kubectl, and compared with the published schemas by PyPI's
//! kubernetes-validate.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::fetched;
use xsched_kube::config::Config;
use xsched_kube::startup_taint::node::KEY;
use xsched_testkit::skipped;

/// Kustomizations, each with the version of Kubernetes whose schemas it must match.
const KUSTOMIZATIONS: [(&str, &str); 7] = [
    ("base", "1.36"),
    ("priority-classes", "1.36"),
    ("priority-classes", "1.37"),
    ("priority-classes-v1beta1", "1.35"),
    ("restart-missed", "1.36"),
    ("startup-taint", "1.36"),
    ("uninstall", "1.36"),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/kubernetes")
}

/// Renders a kustomization by kubectl; `None` without kubectl.
fn rendered(name: &str) -> Option<String> {
    let output = match Command::new(fetched("helm/kubectl").unwrap_or_else(|| "kubectl".into()))
        .arg("kustomize")
        .arg(folder().join(name))
        .output()
    {
        Ok(output) => output,
        Err(e) => {
            skipped(&format!(
                "kubectl cannot be run ({e}): manifests are not rendered; apt-get install kubernetes-client"
            ));
            return None;
        }
    };
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn manifests_fit_the_published_schemas() {
    let work = tempfile::tempdir().unwrap();
    for (name, version) in KUSTOMIZATIONS {
        let Some(text) = rendered(name) else { return };
        let file = work.path().join(format!("{name}.yaml"));
        std::fs::write(&file, text).unwrap();
        let validate = fetched("venv/bin/kubernetes-validate").unwrap_or_else(|| "kubernetes-validate".into());
        let output = match Command::new(validate).args(["-k", version, "--strict"]).arg(&file).output() {
            Ok(output) => output,
            Err(e) => return skipped(&format!("kubernetes-validate ({e}): pip install kubernetes-validate")),
        };
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.success(), "{name}: {said}");
        let passed = said.matches(" passed for resource ").count();
        assert_eq!(passed, std::fs::read_to_string(&file).unwrap().split("\n---\n").count(), "{name}: {said}");
    }
}

#[test]
fn the_node_has_no_rights_at_the_api_server_and_sees_the_nodes_processes() {
    let Some(base) = rendered("base") else { return };
    for kind in ["Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding", "Secret"] {
        assert!(!base.contains(&format!("kind: {kind}\n")), "{kind}");
    }
    let node = base.split("\n---\n").find(|object| object.contains("kind: DaemonSet\n")).unwrap();
    assert!(node.contains("automountServiceAccountToken: false\n") && node.contains("hostPID: true\n"));
    assert!(!node.contains("privileged: true"));
    // Each namespaced object is in our namespace, so deleting the namespace deletes them all.
    for object in base.split("\n---\n").filter(|object| !object.contains("kind: Namespace\n")) {
        let is_of_the_cluster = object.contains("kind: ValidatingAdmissionPolicy");
        let is_ours = object.lines().any(|line| line == "  namespace: xsched");
        assert_eq!(is_ours, !is_of_the_cluster, "{object}");
    }
}

/// Clusters serve `v1` since 1.36, and no longer the beta version.
#[test]
fn the_admission_policy_has_the_version_that_the_cluster_serves() {
    for (name, version) in [("priority-classes", "v1"), ("priority-classes-v1beta1", "v1beta1")] {
        let Some(text) = rendered(name) else { return };
        let policies: Vec<_> =
            text.split("\n---\n").filter(|object| object.contains("kind: MutatingAdmissionPolicy")).collect();
        assert_eq!(policies.len(), 2);
        for policy in policies {
            assert!(
                policy.contains(&format!("apiVersion: admissionregistration.k8s.io/{version}\n")),
                "{name}: {policy}"
            );
        }
        assert_eq!(text.matches("kind: PriorityClass\n").count(), 3);
    }
}

/// A pod whose daemon refused its configuration is not ready, so no further pod is replaced.
#[test]
fn a_node_is_ready_when_each_program_says_so() {
    let Some(base) = rendered("base") else { return };
    let node = base.split("\n---\n").find(|object| object.contains("kind: DaemonSet\n")).unwrap();
    assert!(node.contains("  minReadySeconds: 10\n") && node.contains("      maxUnavailable: 1\n"));
    assert_eq!(node.matches("        readinessProbe:\n").count(), 3, "daemon, device plugin, injector");
    for (port, name) in [(9496, "plugin"), (9497, "injector")] {
        for part in [
            format!("        - 0.0.0.0:{port}\n"),
            format!("        - containerPort: {port}\n          name: {name}\n"),
            format!("          httpGet:\n            path: /ready\n            port: {name}\n"),
        ] {
            assert!(node.contains(&part), "{part}");
        }
    }
    // The daemon's probe, without a daemon.
    let probe =
        "          exec:\n            command:\n            - xsched\n            - ps\n            - --socket\n";
    assert!(node.contains(probe));
    let mut ps = Command::new(xsched_testkit::beside("xsched"));
    let asked = ps.args(["ps", "--socket", "/nonexistent/xsched.sock"]).output().unwrap();
    assert_eq!(asked.status.code(), Some(3));
}

/// Lines of one text that another lacks, and lines that only the other has.
fn differences(one: &str, other: &str) -> (Vec<String>, Vec<String>) {
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    let (mut all, mut more) = (sorted(one), sorted(other));
    more.retain(|line| match all.iter().position(|known| known == line) {
        Some(at) => {
            all.remove(at);
            false
        }
        None => true,
    });
    (all, more)
}

/// The overlay repeats the injector's arguments: those of the base, and one more.
#[test]
fn where_missed_containers_are_restarted_nothing_else_changes() {
    let (Some(base), Some(overlay)) = (rendered("base"), rendered("restart-missed")) else { return };
    let (all, more) = differences(&base, &overlay);
    assert_eq!(all, [""; 0], "all of the base");
    assert_eq!(more, ["            - KILL", "            add:", "        - --restart-missed"]);
}

/// The token is for one container, which needs no other right; the other parts of the node are unchanged.
#[test]
fn the_startup_taint_adds_one_container_with_a_token_and_the_rights_for_a_taint() {
    let (Some(before), Some(overlay)) = (rendered("restart-missed"), rendered("startup-taint")) else { return };
    let added = |kind: &str| -> Vec<String> {
        let objects = |text: &str| -> Vec<String> { text.split("\n---\n").map(str::to_owned).collect() };
        let known = objects(&before);
        let start = format!("\nkind: {kind}\n");
        objects(&overlay).into_iter().filter(|object| object.contains(&start) && !known.contains(object)).collect()
    };
    let [role] = &added("ClusterRole")[..] else { panic!("one role") };
    assert!(
        role.ends_with("rules:\n- apiGroups:\n  - \"\"\n  resources:\n  - nodes\n  verbs:\n  - get\n  - patch"),
        "{role}"
    );
    let [binding] = &added("ClusterRoleBinding")[..] else { panic!("one binding") };
    assert!(binding.ends_with("- kind: ServiceAccount\n  name: xsched-node\n  namespace: xsched"), "{binding}");
    let [policy] = &added("ValidatingAdmissionPolicy")[..] else { panic!("one policy") };
    // The patch of the node, and the one account.
    assert!(policy.contains("request.userInfo.username == 'system:serviceaccount:xsched:xsched-node'\n"), "{policy}");
    assert!(policy.contains(&format!("t.key != '{KEY}'")), "{policy}");
    let (before, after) = (&before, &added("DaemonSet")[0]);
    let before = before.split("\n---\n").find(|object| object.contains("kind: DaemonSet\n")).unwrap();
    let (lacks, more) = differences(before, after);
    assert_eq!(lacks, [""; 0], "all of what it adds to");
    let count = |line: &str| more.iter().filter(|other| other.trim_start_matches(['-', ' ']) == line).count();
    for line in [
        "name: startup-taint",
        "restartPolicy: Always",
        "mountPath: /var/run/secrets/kubernetes.io/serviceaccount",
        "serviceAccountToken:",
        &format!("key: {KEY}"),
    ] {
        // The container and its port share a name.
        assert_eq!(count(line), if line.starts_with("name") { 2 } else { 1 }, "{line}: {more:?}");
    }
    let first = after.split("      initContainers:\n").nth(1).unwrap().split("      - args:\n").nth(1).unwrap();
    assert!(first.contains("        name: startup-taint\n"), "the first to start: {first}");
    for right in ["privileged", "add:", "hostPath", "runAsUser"] {
        assert!(!more.iter().any(|line| line.contains(right)), "{right}");
    }
    // A role for this container only: no other one has the token.
    assert!(after.contains("      automountServiceAccountToken: false\n"));
}

#[test]
fn the_shipped_configuration_of_a_node_is_accepted() {
    Config::read(Some(&folder().join("base/kubernetes.toml"))).unwrap();
    let work = tempfile::tempdir().unwrap();
    let shipped = std::fs::read_to_string(folder().join("base/config.toml")).unwrap();
    // Also with the other choices that it shows, in place of the defaults.
    let another: String = shipped
        .lines()
        .filter(|line| *line != "policy = \"hpf\"")
        .map(|line| match line.strip_prefix("# ") {
            Some(key) if key.starts_with('[') || key.contains(" = ") => format!("{key}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    assert!(another.contains("\nparameters = { by = \"namespace\" }\n[namespaces.team]\n"), "{another}");
    for text in [shipped, another] {
        let file = work.path().join("config.toml");
        std::fs::write(&file, &text).unwrap();
        let mut xsched = Command::new(xsched_testkit::beside("xsched"));
        let checked = xsched.args(["config", "check", "--config"]).arg(&file).output().unwrap();
        assert!(checked.status.success(), "{text}{}", String::from_utf8_lossy(&checked.stderr));
    }
}

/// Names in the guide match those that are built.
#[test]
fn the_guide_names_the_package_and_the_image_as_they_are_made() {
    let guide = std::fs::read_to_string(folder().join("../../docs/guide/kubernetes.md")).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert!(guide.contains(&format!("/tmp/xsched/xsched_{version}-1_amd64.deb")), "the package");
    // Version of the package: dist/kubernetes/image.py.
    assert!(guide.contains(&format!("newTag: {version}-1")), "the image's tag");
    let tag = format!("appVersion: \"{version}-1\"\n");
    assert!(std::fs::read_to_string(folder().join("helm/Chart.yaml")).unwrap().contains(&tag), "the chart's image");
    // Uninstalling removes everything outside of the namespace.
    for line in [
        "kubectl delete -k dist/kubernetes/base",
        "kubectl delete -k dist/kubernetes/priority-classes",
        "kubectl taint node -l xsched.dev/gpu=true xsched.dev/not-ready-",
        "/run/xsched-containers",
    ] {
        assert!(guide.split("## Upgrade and uninstall").nth(1).unwrap().contains(line), "{line}");
    }
}

#[test]
fn the_charts_version_is_the_programs() {
    let chart = std::fs::read_to_string(folder().join("helm/Chart.yaml")).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert!(chart.contains(&format!("\nversion: {version}\nappVersion: \"{version}-1\"\n")), "{chart}");
}

/// The port that monitors are sent to is the one where the daemon listens.
#[test]
fn metrics_are_at_the_pods_address_under_a_named_port() {
    let read = |name: &str| std::fs::read_to_string(folder().join("base").join(name)).unwrap();
    let config: toml::Table = toml::from_str(&read("config.toml")).unwrap();
    let listen: std::net::SocketAddr = config["metrics"]["listen"].as_str().unwrap().parse().unwrap();
    assert!(listen.ip().is_unspecified());
    let (node, port) = (read("node.yaml"), listen.port());
    assert!(node.contains(&format!("prometheus.io/port: \"{port}\"\n")));
    assert!(node.contains(&format!("- {{ name: metrics, containerPort: {port} }}\n")));
    // With the host's network it would be the address of the node.
    assert!(!node.contains("hostNetwork"));
}

/// The uninstall manifest removes all that the others write on a node.
#[test]
fn uninstall_reaches_each_folder_of_the_node_that_is_written() {
    let read = |name: &str| std::fs::read_to_string(folder().join(name)).unwrap();
    let (node, uninstall) = (read("base/node.yaml"), read("uninstall/uninstall.yaml"));
    let host = |text: &str| -> Vec<String> {
        let paths = text.split("hostPath: { path: ").skip(1);
        paths.map(|rest| rest.split(',').next().unwrap().to_owned()).collect()
    };
    let removed = host(&uninstall);
    // The kubelet's and the runtime's own folders are only read, or hold files that end with the program.
    let kept = ["/var/lib/kubelet/pod-resources", "/var/run/nri"];
    let written: Vec<String> = host(&node).into_iter().filter(|path| !kept.contains(&path.as_str())).collect();
    assert_eq!(removed, written);
}
