//! System packages that the tests use. As root they are installed; otherwise the missing ones are reported.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::test::step::{Step, Verdict};

/// Debian package and its purpose, for the line about a missing one.
pub(crate) type Package = (&'static str, &'static str);

/// Packages that `cargo xtask test` needs.
pub(crate) const FOR_TESTS: [Package; 19] = [
    ("gcc", "C test programs"),
    ("libc6-dev", "C test programs"),
    ("binutils", "checks of exported symbols"),
    ("pkg-config", "compiling against the C API"),
    ("python3", "Python programs"),
    ("python3-venv", "the wheel, programs of PyPI"),
    ("python3-prometheus-client", "the format of the metrics page"),
    ("pocl-opencl-icd", "an OpenCL device on the CPU"),
    ("ocl-icd-opencl-dev", "linking OpenCL programs"),
    ("opencl-headers", "compiling OpenCL programs, the signature check"),
    ("valgrind", "instruction counts"),
    ("xvfb", "a display for the active window"),
    ("tmux", "a terminal for xsched top"),
    ("libhsa-runtime-dev", "AMD's own runtime, on a pretended kernel"),
    ("hipcc", "AMD's own compiler and HIP, likewise"),
    ("man-db", "manual pages"),
    ("groff-base", "manual pages"),
    ("zsh", "completions"),
    ("fish", "completions"),
];

/// Further packages that `cargo xtask ci` needs.
pub(crate) const FOR_CI: [Package; 16] = [
    ("lintian", "the Debian package"),
    ("g++", "the ViennaCL program"),
    ("clinfo", "the OpenCL ladder"),
    ("clpeak", "the OpenCL ladder"),
    ("clblast-tests", "the OpenCL ladder"),
    ("libviennacl-dev", "the OpenCL ladder"),
    ("python3-pyopencl", "the OpenCL ladder"),
    ("python3-pytest", "PyOpenCL's own tests"),
    ("librocrand-dev", "the HIP ladder's real libraries"),
    ("librocsparse-dev", "the HIP ladder's real libraries"),
    ("libhiprand-dev", "the HIP ladder's real libraries"),
    ("libhipsparse-dev", "the HIP ladder's real libraries"),
    ("podman", "containers"),
    ("runc", "containers"),
    ("musl-tools", "an image of musl"),
    ("libjemalloc2", "an image with a preload of its own"),
];

/// Package that is unpacked into the target folder, which needs no rights, and not installed: it would start a service on the machine.
const UNPACKED: Package = ("prometheus", "promtool and a server that reads the metrics");

/// Package with PyOpenCL's examples and tests, in a folder that minimal installations leave out.
const EXAMPLES_PACKAGE: &str = "python-pyopencl-doc";
const EXAMPLES: &str = "usr/share/doc/python-pyopencl-doc/examples";

/// Installs those of the packages that are missing, if run as root on a Debian system, and reports each one that stays missing as `SKIPPED:
/// …`.
pub(crate) fn install(step: &Step, packages: &[Package]) -> Verdict {
    if !runs("dpkg-query", &["--version"]) {
        return Verdict::Skipped("not a Debian system: install PoCL and the OpenCL programs by hand".into());
    }
    let missing = missing(packages);
    if !missing.is_empty() && user_is_root() {
        let names: Vec<&str> = missing.iter().map(|(name, _)| *name).collect();
        step.say(&format!("installing {}", names.join(" ")));
        // After a failed update the present lists still serve. A failed installation is reported below, as packages that stay missing.
        apt(step, &["update", "-qq"]);
        if !apt(step, &[&["install", "-y", "-qq", "--no-install-recommends"], names.as_slice()].concat()) {
            // The packages are then installed one by one, so that one which this release lacks does not keep out the others.
            for name in &names {
                apt(step, &["install", "-y", "-qq", "--no-install-recommends", name]);
            }
        }
    }
    let left = self::missing(packages);
    for (name, purpose) in &left {
        step.skip(&format!("package {name} ({purpose}): not installed; apt-get install {name}"));
    }
    Verdict::Passed
}

/// Folder of programs that tests find although they are not installed. It may be missing.
pub(crate) fn unpacked_programs(target: &Path) -> PathBuf {
    target.join("packages").join(UNPACKED.0).join("usr/bin")
}

/// Fetches the package that is unpacked instead of installed, unless the machine has it.
pub(crate) fn unpack(step: &Step, target: &Path) -> Verdict {
    let (name, purpose) = UNPACKED;
    let programs = unpacked_programs(target);
    if runs("promtool", &["--version"]) || programs.join("promtool").exists() {
        return Verdict::Passed;
    }
    let folder = target.join("packages").join(name);
    let fetched = fetched(&folder, name) || user_is_root() && apt(step, &["update", "-qq"]) && fetched(&folder, name);
    if !fetched {
        step.skip(&format!("package {name} ({purpose}): cannot be downloaded; apt-get install {name}"));
    }
    Verdict::Passed
}

/// Downloads a package and unpacks it into a folder.
fn fetched(folder: &Path, package: &str) -> bool {
    if std::fs::create_dir_all(folder).is_err() {
        return false;
    }
    let mut download = Command::new("apt-get");
    if !succeeds(download.args(["download", "-qq", package]).current_dir(folder)) {
        return false;
    }
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let Some(file) = files.into_iter().find(|path| path.extension().is_some_and(|e| e == "deb")) else {
        return false;
    };
    let done = succeeds(Command::new("dpkg-deb").arg("-x").arg(&file).arg(folder));
    // A file that stays does no harm.
    let _ = std::fs::remove_file(file);
    done
}

/// Folder of PyOpenCL's examples: the system's, or one fetched into `work`. None if neither can be had.
pub(crate) fn pyopencl_examples(work: &Path) -> Option<PathBuf> {
    let fetched = work.join("pyopencl-doc");
    for root in [Path::new("/"), &fetched] {
        let folder = root.join(EXAMPLES);
        if folder.join("demo.py").exists() {
            return Some(folder);
        }
    }
    self::fetched(&fetched, EXAMPLES_PACKAGE).then(|| fetched.join(EXAMPLES))
}

/// Version of an installed package.
pub(crate) fn version(package: &str) -> Option<String> {
    let output = Command::new("dpkg-query").args(["-W", "-f=${Status}\t${Version}", package]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (status, version) = text.split_once('\t')?;
    (status == "install ok installed").then(|| version.to_string())
}

fn missing(packages: &[Package]) -> Vec<Package> {
    packages.iter().copied().filter(|(name, _)| version(name).is_none()).collect()
}

fn apt(step: &Step, args: &[&str]) -> bool {
    let mut apt = Command::new("apt-get");
    apt.args(args).env("DEBIAN_FRONTEND", "noninteractive");
    step.watched(&mut apt).is_ok_and(|status| status.success())
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
