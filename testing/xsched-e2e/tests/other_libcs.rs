//! Programs with a C library in which nothing is scheduled: the library is loaded into them all the same, by an inherited variable or a
//! host's file that they see, and they run as without it.

use std::path::{Path, PathBuf};
use std::process::Command;

use xsched_e2e::{Place, Process, beside, skipped};

/// Runs a program: its exit code, its output and its complaints.
fn run(place: &Place, program: &Path, variables: &[(&str, &str)]) -> (i32, Vec<String>, String) {
    let mut command = place.command(program, &[]);
    command.envs(variables.iter().copied());
    Process::start(command).wait()
}

fn preload() -> String {
    beside("libxsched.so").to_str().expect("text").to_owned()
}

/// Checks that the program runs as without the library, which prints at most one line, because it looked for functions of a driver.
#[track_caller]
fn runs_as_without(place: &Place, program: &Path, variables: &[(&str, &str)], line: &str) {
    let bare = run(place, program, variables);
    assert!(bare.0 == 0 && bare.1.len() == 8 && bare.2.is_empty(), "{bare:?}");
    let preload = preload();
    let with: Vec<_> = variables.iter().copied().chain([("LD_PRELOAD", preload.as_str())]).collect();
    let line = format!("xsched: {line}");
    assert_eq!(run(place, program, &with), (0, bare.1.clone(), format!("{line}: it runs unscheduled\n")));
    let quiet: Vec<_> = with.iter().copied().chain([("XSCHED_DISABLE", "1")]).collect();
    assert_eq!(run(place, program, &quiet), (0, bare.1, String::new()));
    let required: Vec<_> = with.iter().copied().chain([("XSCHED_REQUIRE", "1")]).collect();
    let (code, _, errors) = run(place, program, &required);
    assert!(code == 3 && errors.starts_with(&line) && errors.lines().count() == 1, "{code}: {errors}");
}

#[test]
fn a_program_of_musl_runs_as_without_the_library() {
    let place = Place::new();
    let program = place.join("other_libc");
    let mut compiler = Command::new("musl-gcc");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/programs/hazards/other_libc.c");
    compiler.arg(source).arg("-o").arg(&program);
    match compiler.status() {
        Ok(status) => assert!(status.success(), "{compiler:?}: {status}"),
        Err(_) => return skipped("musl-gcc is missing (apt-get install musl-tools)"),
    }
    runs_as_without(&place, &program, &[], "the C library of this program is not glibc");
}

/// Makes a folder with this machine's C library, changed so that it reports this version.
fn aged(place: &Place, version: &str) -> PathBuf {
    let told = place.command("getconf", &["GNU_LIBC_VERSION"]).output().expect("getconf runs").stdout;
    let told = String::from_utf8(told).expect("text");
    let real = told.trim().strip_prefix("glibc ").expect("glibc and its version");
    assert_eq!(real.len(), version.len(), "{real} does not make room for {version}");
    let maps = std::fs::read_to_string("/proc/self/maps").expect("own maps");
    let file = maps.split_whitespace().find(|word| word.ends_with("/libc.so.6")).expect("the C library");
    let mut bytes = std::fs::read(file).expect("the C library");
    let wanted = format!("{real}\0").into_bytes();
    for at in 0..bytes.len() - wanted.len() {
        // The names of its symbols' versions stay.
        if bytes[at..].starts_with(&wanted) && bytes[at - 1] != b'_' {
            bytes[at..at + version.len()].copy_from_slice(version.as_bytes());
        }
    }
    let folder = place.join("aged");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::write(folder.join("libc.so.6"), bytes).expect("a file");
    folder
}

#[test]
fn a_program_of_an_older_glibc_runs_as_without_the_library() {
    let place = Place::new();
    let program = place.compile("programs/hazards/other_libc.c", &["-lpthread", "-ldl"]);
    let folder = aged(&place, "2.27");
    let variables = [("LD_LIBRARY_PATH", folder.to_str().expect("text"))];
    runs_as_without(&place, &program, &variables, "the glibc of this program is 2.27, older than 2.28");
    // The library that is loaded there is the shipped one.
    let with = [("LD_PRELOAD", preload()), ("LD_LIBRARY_PATH", folder.to_str().expect("text").to_owned())];
    let mut command = place.command("/bin/cat", &["/proc/self/maps"]);
    command.envs(with.iter().map(|(name, value)| (name, value)));
    let (code, lines, errors) = Process::start(command).wait();
    let maps = lines.join("\n");
    assert!(
        code == 0 && errors.is_empty() && maps.contains("aged/libc.so.6") && maps.contains("libxsched.so"),
        "{maps}"
    );
}

/// Files that packages, the wheel, the archive and bundles have.
const SHIPPED: [&str; 8] = [
    "xsched",
    "xsched-kube",
    "libxsched.so",
    "libsimdev.so",
    "libpreempt.so",
    "libhalcuda.so",
    "libhalhip.so",
    "libhalopencl.so",
];

#[test]
fn what_is_shipped_asks_for_no_newer_glibc_than_2_28() {
    for name in SHIPPED {
        let listed = Command::new("objdump").arg("-p").arg(beside(name)).output().expect("objdump runs");
        assert!(listed.status.success(), "{name}: {}", String::from_utf8_lossy(&listed.stderr));
        let listed = String::from_utf8(listed.stdout).expect("text");
        let versions: Vec<Vec<u32>> = listed
            .split_whitespace()
            .filter_map(|word| word.strip_prefix("GLIBC_"))
            .map(|version| version.split('.').map(|number| number.parse().expect("a number")).collect())
            .collect();
        assert!(!versions.is_empty(), "{name} needs a C library");
        assert!(versions.iter().all(|version| version.as_slice() <= [2, 28].as_slice()), "{name}: {versions:?}");
        // Parts of the C library, and libraries that come with any compiler of C.
        let known = ["libc.so.6", "libdl.so.2", "libpthread.so.0", "libm.so.6", "librt.so.1", "libgcc_s.so.1"];
        let needed = listed.lines().filter_map(|line| line.trim().strip_prefix("NEEDED"));
        let unknown: Vec<&str> = needed.map(str::trim).filter(|library| !known.contains(library)).collect();
        assert!(unknown.is_empty(), "{name} needs {unknown:?}");
    }
}
