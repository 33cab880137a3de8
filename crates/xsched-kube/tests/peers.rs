//! The programs against peers that share no code with them: gRPC's C library as a kubelet, and a real containerd. Also
//! the chart, as Helm reads it, and an admission policy, as Google's CEL evaluates it.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::fetched;
use xsched_testkit::skipped;

const KUBE: &str = env!("CARGO_BIN_EXE_xsched-kube");

/// Runs a program of `testing/machines/kubernetes` on one of our programs, or on the folder of all. Exit code 77 means that
/// something it needs is missing.
fn run(name: &str, arguments: &[PathBuf]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/machines/kubernetes").join(name);
    let python = fetched("venv/bin/python3").unwrap_or_else(|| "python3".into());
    let mut command = Command::new(python);
    command.arg("-B").arg(script).args(arguments);
    let output = match command.output() {
        Ok(output) => output,
        Err(e) => return skipped(&format!("{name}: python3 cannot be run: {e}")),
    };
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.code() == Some(77) {
        return skipped(&format!("{name}: {said}"));
    }
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_device_plugin_is_understood_by_the_c_library_of_grpc() {
    run("kubelet.py", &[KUBE.into()]);
}

#[test]
fn a_pods_annotation_reaches_its_container_under_a_real_containerd() {
    let bin = Path::new(KUBE).parent().expect("a folder").to_owned();
    run("injector.py", &Vec::from_iter([Some(bin), fetched("sid/usr/bin")].into_iter().flatten()));
}

#[test]
fn helm_makes_of_the_chart_what_kustomize_makes_of_the_manifests() {
    run("chart.py", &Vec::from_iter(fetched("helm")));
}

#[test]
fn the_account_of_the_startup_taint_changes_one_taint_of_its_own_node() {
    run("policy.py", &[]);
}
