//! The programs against peers that share no code with them: gRPC's C library as a kubelet, and a real containerd.

use std::path::Path;
use std::process::Command;

use xsched_testkit::skipped;

/// Runs a program of `testing/kubernetes`. Exit code 77 says that something it needs is not there.
fn run(name: &str) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/kubernetes").join(name);
    let output = match Command::new("python3").arg("-B").arg(script).arg(env!("CARGO_BIN_EXE_xsched-kube")).output() {
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
    run("kubelet.py");
}

#[test]
fn a_pods_annotation_reaches_its_container_under_a_real_containerd() {
    run("cri.py");
}
