//! The manifests of `dist/kubernetes`: rendered by kubectl, and held against the published schemas by PyPI's kubernetes-validate.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::fetched;
use xsched_kube::config::Config;
use xsched_testkit::skipped;

/// The version of Kubernetes whose schemas they are held against.
const VERSION: &str = "1.35";
const KUSTOMIZATIONS: [&str; 3] = ["base", "priority-classes", "uninstall"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/kubernetes")
}

/// One as kubectl renders it; none without kubectl.
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
    for name in KUSTOMIZATIONS {
        let Some(text) = rendered(name) else { return };
        let file = work.path().join(format!("{name}.yaml"));
        std::fs::write(&file, text).unwrap();
        let validate = fetched("venv/bin/kubernetes-validate").unwrap_or_else(|| "kubernetes-validate".into());
        let output = match Command::new(validate).args(["-k", VERSION, "--strict"]).arg(&file).output() {
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
    // Each object of a namespace is in ours: deleting the namespace takes them.
    for object in base.split("\n---\n").filter(|object| !object.contains("kind: Namespace\n")) {
        let is_of_the_cluster = object.contains("kind: ValidatingAdmissionPolicy");
        let is_ours = object.lines().any(|line| line == "  namespace: xsched");
        assert_eq!(is_ours, !is_of_the_cluster, "{object}");
    }
}

#[test]
fn the_shipped_configuration_of_a_node_is_accepted() {
    Config::read(Some(&folder().join("base/kubernetes.toml"))).unwrap();
    let mut xsched = Command::new(xsched_testkit::beside("xsched"));
    let checked = xsched.args(["config", "check", "--config"]).arg(folder().join("base/config.toml")).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn the_charts_version_is_the_programs() {
    let chart = std::fs::read_to_string(folder().join("helm/Chart.yaml")).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert!(chart.contains(&format!("\nversion: {version}\nappVersion: \"{version}\"\n")), "{chart}");
}

/// What monitors look for is where the daemon listens.
#[test]
fn metrics_are_at_the_pods_address_under_a_named_port() {
    let read = |name: &str| std::fs::read_to_string(folder().join("base").join(name)).unwrap();
    let config: toml::Table = toml::from_str(&read("config.toml")).unwrap();
    let listen: std::net::SocketAddr = config["metrics"]["listen"].as_str().unwrap().parse().unwrap();
    assert!(listen.ip().is_unspecified());
    let (node, port) = (read("node.yaml"), listen.port());
    assert!(node.contains(&format!("prometheus.io/port: \"{port}\"\n")));
    assert!(node.contains(&format!("- {{ name: metrics, containerPort: {port} }}\n")));
    // With the host's network it would be the node's address.
    assert!(!node.contains("hostNetwork"));
}

/// What it takes away is all that the other puts on a node.
#[test]
fn uninstall_reaches_each_folder_of_the_node_that_is_written() {
    let read = |name: &str| std::fs::read_to_string(folder().join(name)).unwrap();
    let (node, uninstall) = (read("base/node.yaml"), read("uninstall/uninstall.yaml"));
    let host = |text: &str| -> Vec<String> {
        let paths = text.split("hostPath: { path: ").skip(1);
        paths.map(|rest| rest.split(',').next().unwrap().to_owned()).collect()
    };
    let removed = host(&uninstall);
    // The kubelet's and the runtime's own folders are read only, or hold what ends with the program.
    let kept = ["/var/lib/kubelet/pod-resources", "/var/run/nri"];
    let written: Vec<String> = host(&node).into_iter().filter(|path| !kept.contains(&path.as_str())).collect();
    assert_eq!(removed, written);
}
