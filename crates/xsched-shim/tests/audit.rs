//! Audit of the hooks: every vendor function is in exactly one class, hooked or not; the library exports its hooks and
//! nothing else; no platform names another; and the library needs nothing that its host may lack.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use xsched::interpose::Group;
use xsched::platform::{cuda, hip, hook, hooked_names, opencl, sim};

/// The functions that a platform hooks.
fn hooked(groups: &[&Group]) -> BTreeSet<&'static str> {
    let mut found = BTreeSet::new();
    for group in groups {
        for hook in group.hooks {
            let name = hook.name.to_str().expect("an identifier");
            assert!(found.insert(name), "{name} is in two classes, {:?} is one", group.class);
        }
    }
    found
}

/// The functions that a platform hooks and the names in its data files. Fails if a name is in both.
fn classed(mut hooked: BTreeSet<&'static str>, files: &[&'static str]) -> BTreeSet<&'static str> {
    for name in files.iter().flat_map(|text| text.lines()).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        assert!(hooked.insert(name), "{name} is in two classes");
    }
    hooked
}

fn assert_same(left: &BTreeSet<&str>, right: &BTreeSet<&str>, what: &str) {
    let (more, less): (Vec<_>, Vec<_>) = (left.difference(right).collect(), right.difference(left).collect());
    assert!(more.is_empty() && less.is_empty(), "{what}: only left {more:?}, only right {less:?}");
}

/// The preload library that cargo built beside this test.
fn library() -> PathBuf {
    let deps = std::env::current_exe().expect("own path");
    let found = deps.parent().and_then(Path::parent).expect("target folder").join("libxsched.so");
    assert!(found.exists(), "{} is missing: build the workspace first", found.display());
    found
}

fn output_of(program: &str, arguments: &[&str]) -> String {
    let out = Command::new(program).args(arguments).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(out.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("text")
}

#[test]
fn every_hook_is_found_by_its_name() {
    for name in hooked_names() {
        let c_name = CString::new(name).expect("an identifier");
        assert!(hook(&c_name).is_some(), "{name}: `platform::hook` does not know how its platform's names begin");
    }
}

#[test]
fn every_opencl_signature_is_in_exactly_one_class() {
    let signatures: BTreeSet<&str> = opencl::signature_names().into_iter().collect();
    let files =
        [include_str!("../src/platform/opencl/no_device_work.txt"), include_str!("../src/platform/opencl/record.txt")];
    assert_same(&signatures, &classed(hooked(opencl::HOOKS), &files), "signatures and classes");
    assert!(signatures.len() > 200, "the list is not cut short: {}", signatures.len());
}

#[test]
fn every_cuda_function_is_in_exactly_one_class() {
    let signatures: BTreeSet<&str> = cuda::signature_names().into_iter().collect();
    assert!(signatures.len() > 600, "the list is not cut short: {}", signatures.len());
    // Beyond the header: exports of a real driver (580.159), read from its symbol table.
    let mut wanted = signatures.clone();
    wanted.extend(include_str!("../../../testing/ladders/cuda/exports-580.159.txt").lines());
    let hooked = hooked(cuda::HOOKS);
    let undeclared: Vec<_> = hooked.difference(&signatures).collect();
    assert!(undeclared.is_empty(), "hooked, but not declared: {undeclared:?}");
    let files = [include_str!("../src/platform/cuda/no_device_work.txt")];
    assert_same(&wanted, &classed(hooked, &files), "functions and classes");
}

#[test]
fn every_hip_function_is_in_exactly_one_class() {
    let signatures: BTreeSet<&str> = hip::signature_names().into_iter().collect();
    assert!(signatures.len() > 490, "the list is not cut short: {}", signatures.len());
    // Functions outside of that header: exports of Debian's libamdhip64 of ROCm 5.2, read from its symbol table;
    // declarations of the newest release (7.14, the names in the crate cubecl-hip-sys); functions that hipcc's output
    // calls but no header declares; and exports of Debian's libraries of 6.4 and 7.2, which are in the software
    // runtime's list.
    let mut wanted = signatures.clone();
    wanted.extend(include_str!("../../../testing/ladders/hip/exports-5.2.21153.txt").lines());
    wanted.extend(include_str!("../../../testing/ladders/hip/names-7.14.txt").lines());
    let symbols =
        include_str!("../../../testing/ladders/hip/symbols.txt").lines().filter(|line| !line.starts_with('#'));
    wanted.extend(symbols.filter_map(|line| line.split_whitespace().nth(1)));
    wanted.extend([
        "__hipRegisterManagedVar",
        "__hipReportDevices",
        "hipGLGetDevices",
        "hipGraphicsGLRegisterBuffer",
        "hipGraphicsGLRegisterImage",
        "hipExtHostAlloc",
        "hipExtModuleLaunchKernel",
        "hipHccModuleLaunchKernel",
    ]);
    let hooked = hooked(hip::HOOKS);
    let outside = hooked.difference(&signatures).copied().collect();
    assert_same(&hip::outside_names().into_iter().collect(), &outside, "other signatures and hooked names");
    let files = [include_str!("../src/platform/hip/no_device_work.txt")];
    assert_same(&wanted, &classed(hooked, &files), "functions and classes");
}

#[test]
fn every_function_of_the_simulated_device_is_in_exactly_one_class() {
    let header = include_str!("../../xsched-simdev/include/simdev.h");
    let declared: BTreeSet<&str> = header
        .lines()
        .filter_map(|line| line.strip_prefix("int "))
        .filter_map(|rest| rest.split_once('('))
        .map(|(name, _)| name)
        .filter(|name| name.starts_with("sim"))
        .collect();
    let files = [include_str!("../src/platform/sim/no_device_work.txt")];
    assert_same(&declared, &classed(hooked(sim::HOOKS), &files), "simdev.h and classes");
}

/// Every `.rs` file below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

#[test]
fn a_platform_names_no_other() {
    let platforms = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/platform");
    let names = ["cuda", "hip", "hsa", "opencl", "sim"];
    for folder in names.iter().chain(&["shared"]) {
        let files = sources(&platforms.join(folder));
        assert!(!files.is_empty(), "{folder} is a folder with sources");
        for file in files {
            let text = std::fs::read_to_string(&file).expect("a source");
            let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
            for (number, line) in code.enumerate() {
                let mut words = line.split(|c: char| c != '_' && !c.is_ascii_alphanumeric());
                let other = words.find(|word| names.contains(word) && word != folder);
                assert_eq!(other, None, "{}:{}", file.display(), number + 1);
            }
        }
    }
}

#[test]
fn the_library_exports_its_hooks_and_nothing_else() {
    let library = library();
    let listing = output_of("nm", &["-D", "--defined-only", library.to_str().expect("path")]);
    let exported: BTreeSet<&str> = listing.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    let mut wanted: BTreeSet<&str> = hooked_names().into_iter().collect();
    wanted.extend(["dlclose", "dlsym", "dlvsym", "ioctl"]);
    wanted.extend(xsched::exports::domain::NAMES);
    wanted.extend(xsched::exports::sanitizer::NAMES);
    wanted.extend(xsched::exports::exec::NAMES);
    wanted.extend(xsched::scheduler::NAMES);
    wanted.insert(xsched_capi::ENTRY.to_str().expect("an identifier"));
    assert_same(&exported, &wanted, "exports and hooks");
}

#[test]
fn the_library_needs_nothing_that_a_c_library_may_lack() {
    let library = library();
    let path = library.to_str().expect("path");
    let dynamic = output_of("readelf", &["-dW", path]);
    let needed: BTreeSet<&str> = dynamic
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .filter_map(|line| line.split_once('[')?.1.split_once(']'))
        .map(|(name, _)| name)
        .collect();
    // Not even the loader's name, which musl does not know.
    assert_same(&needed, &["libc.so.6"].into(), "DT_NEEDED");
    assert!(!dynamic.contains("RPATH") && !dynamic.contains("RUNPATH"), "no path into a build tree");
    let symbols = output_of("nm", &["-D", "--undefined-only", path]);
    for (kind, name) in symbols.lines().filter_map(|line| line.trim().split_once(' ')) {
        // A missing version ends the program even if the reference is weak; a missing function only if it is not.
        let (name, version) = name.split_once("@GLIBC_").unwrap_or((name, ""));
        let parts: Vec<u32> = version.split('.').filter_map(|n| n.parse().ok()).collect();
        assert!(parts.as_slice() <= [2, 4].as_slice(), "{name} needs GLIBC_{version}");
        assert!(kind == "w" || !version.is_empty(), "{name} is of no C library of 2005");
    }
}

/// Functions that musl lacks, by its own library, must be weak references.
#[test]
fn the_library_needs_nothing_that_musl_lacks() {
    let musl = "/lib/ld-musl-x86_64.so.1";
    if !Path::new(musl).exists() {
        return xsched_testkit::skipped("musl is missing (apt-get install musl)");
    }
    let library = library();
    let listing = output_of("nm", &["-D", "--defined-only", musl]);
    let offered: BTreeSet<&str> = listing.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    let listing = output_of("nm", &["-D", "--undefined-only", library.to_str().expect("path")]);
    let wanted = listing.lines().filter_map(|line| line.trim().strip_prefix("U ")?.split('@').next());
    let missing: Vec<&str> = wanted.filter(|name| !offered.contains(name)).collect();
    assert!(missing.is_empty(), "musl lacks {missing:?}");
}

#[test]
fn entries_of_a_dispatch_table_lie_where_the_header_has_them() {
    let mut text = String::from("#include <stddef.h>\n#include <CL/cl_icd.h>\n");
    for (name, index) in opencl::dispatch_entries() {
        text +=
            &format!("_Static_assert(offsetof(cl_icd_dispatch, {name}) == {index} * sizeof(void *), \"{name}\");\n");
    }
    let mut cc = Command::new("cc");
    cc.args(["-fsyntax-only", "-DCL_TARGET_OPENCL_VERSION=300", "-x", "c", "-"]).stdin(Stdio::piped());
    let mut cc = cc.spawn().expect("a C compiler");
    cc.stdin.take().expect("stdin").write_all(text.as_bytes()).expect("it reads");
    assert!(cc.wait().expect("a child").success(), "see above");
}
