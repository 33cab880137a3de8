//! The programs against peers that share no code with them: gRPC's C library as a kubelet, and a real containerd.

use std::path::Path;
use std::process::Command;

use xsched_testkit::skipped;

const KUBE: &str = env!("CARGO_BIN_EXE_xsched-kube");

/// Runs a program of `testing/kubernetes` on one of ours, or on the folder of all. Exit code 77 says that something it needs is not there.
fn run(name: &str, what: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/kubernetes").join(name);
    let output = match Command::new("python3").arg("-B").arg(script).arg(what).output() {
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
    run("kubelet.py", KUBE.as_ref());
}

#[test]
fn a_pods_annotation_reaches_its_container_under_a_real_containerd() {
    run("injector.py", Path::new(KUBE).parent().expect("a folder"));
}

#[test]
#[ignore = "a quarter of a minute: `cargo test -p xsched-kube --test peers -- --ignored`, as `cargo xtask test --long` does"]
fn the_life_of_sandboxes_leaves_nothing_under_a_real_containerd() {
    run("life.py", Path::new(KUBE).parent().expect("a folder"));
}
