//! System packages that the tests use: found, installed when we may, named when we may not.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Debian packages and what each is for, as it is told when one is missing.
const PACKAGES: [(&str, &str); 29] = [
    ("gcc", "C test programs"),
    ("g++", "the ViennaCL program"),
    ("libc6-dev", "C test programs"),
    ("binutils", "checks of exported symbols"),
    ("python3", "the compatibility ladder"),
    ("pocl-opencl-icd", "an OpenCL device on the CPU"),
    ("ocl-icd-opencl-dev", "linking OpenCL programs"),
    ("opencl-headers", "compiling OpenCL programs, the signature check"),
    ("clinfo", "compatibility"),
    ("clpeak", "compatibility"),
    ("clblast-tests", "compatibility"),
    ("libviennacl-dev", "compatibility"),
    ("python3-pyopencl", "compatibility"),
    ("python3-pytest", "PyOpenCL's own tests"),
    ("valgrind", "instruction counts"),
    ("xvfb", "a display for the active window"),
    ("libhsa-runtime-dev", "AMD's own runtime, on a pretended kernel"),
    ("man-db", "manual pages"),
    ("podman", "containers"),
    ("runc", "containers"),
    ("musl-tools", "an image of musl"),
    ("libjemalloc2", "an image with a preload of its own"),
    ("zsh", "completions"),
    ("fish", "completions"),
    ("hipcc", "AMD's own compiler and HIP, likewise"),
    ("librocrand-dev", "the HIP ladder's real libraries"),
    ("librocsparse-dev", "the HIP ladder's real libraries"),
    ("libhiprand-dev", "the HIP ladder's real libraries"),
    ("libhipsparse-dev", "the HIP ladder's real libraries"),
];

/// PyOpenCL's examples and tests come with this one, in a folder that minimal installations leave out.
const EXAMPLES_PACKAGE: &str = "python-pyopencl-doc";
const EXAMPLES: &str = "usr/share/doc/python-pyopencl-doc/examples";

/// Installs what is missing when run as root on a Debian system. Gives a line for each thing that stays missing.
pub(crate) fn install() -> Vec<String> {
    if !runs("dpkg-query", &["--version"]) {
        return vec!["packages: not a Debian system, install PoCL and the OpenCL programs by hand".into()];
    }
    let missing = missing();
    if missing.is_empty() {
        return Vec::new();
    }
    let names: Vec<&str> = missing.iter().map(|(name, _)| *name).collect();
    if user_is_root() {
        println!("installing {}", names.join(" "));
        // A failed update still leaves what is in the lists already; a failed install shows in what stays missing.
        apt(&["update", "-qq"]);
        if !apt(&[&["install", "-y", "-qq", "--no-install-recommends"], names.as_slice()].concat()) {
            // One package that this release lacks must not keep the others away.
            for name in &names {
                apt(&["install", "-y", "-qq", "--no-install-recommends", name]);
            }
        }
    }
    self::missing()
        .iter()
        .map(|(name, purpose)| format!("package {name} ({purpose}): not installed; apt-get install {name}"))
        .collect()
}

/// Where PyOpenCL's examples are, fetching them into `work` if the system has none. None if they cannot be had.
pub(crate) fn pyopencl_examples(work: &Path) -> Option<PathBuf> {
    let fetched = work.join("pyopencl-doc");
    for root in [Path::new("/"), &fetched] {
        let folder = root.join(EXAMPLES);
        if folder.join("demo.py").exists() {
            return Some(folder);
        }
    }
    std::fs::create_dir_all(&fetched).ok()?;
    let mut download = Command::new("apt-get");
    download.args(["download", "-qq", EXAMPLES_PACKAGE]).current_dir(&fetched);
    if !succeeds(&mut download) {
        return None;
    }
    let package = std::fs::read_dir(&fetched).ok()?.flatten().map(|e| e.path());
    let package = package.into_iter().find(|p| p.extension().is_some_and(|e| e == "deb"))?;
    succeeds(Command::new("dpkg-deb").arg("-x").arg(package).arg(&fetched)).then(|| fetched.join(EXAMPLES))
}

/// Version of an installed package.
pub(crate) fn version(package: &str) -> Option<String> {
    let output = Command::new("dpkg-query").args(["-W", "-f=${Status}\t${Version}", package]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (status, version) = text.split_once('\t')?;
    (status == "install ok installed").then(|| version.to_string())
}

fn missing() -> Vec<(&'static str, &'static str)> {
    PACKAGES.into_iter().filter(|(name, _)| version(name).is_none()).collect()
}

fn apt(args: &[&str]) -> bool {
    succeeds(Command::new("apt-get").args(args).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null()))
}

fn runs(program: &str, args: &[&str]) -> bool {
    succeeds(Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::null()))
}

fn succeeds(command: &mut Command) -> bool {
    command.status().is_ok_and(|status| status.success())
}

fn user_is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}
