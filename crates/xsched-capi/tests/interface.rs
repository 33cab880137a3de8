//! Agreement of the headers, the libraries and the reference.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use xsched_capi::types::{POLICIES, XResult, flag, policy_name, scheduler, state};
use xsched_capi::{HalCuda, HalHip, HalOpenCl, Preempt};
use xsched_testkit::beside;

const LIBRARIES: [(&str, &[&str]); 4] = [
    ("libpreempt.so", Preempt::NAMES),
    ("libhalcuda.so", HalCuda::NAMES),
    ("libhalhip.so", HalHip::NAMES),
    ("libhalopencl.so", HalOpenCl::NAMES),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn output_of(program: &str, arguments: &[&str]) -> String {
    let out = Command::new(program).args(arguments).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(out.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("text")
}

#[test]
fn each_library_exports_its_functions_and_nothing_else() {
    for (library, names) in LIBRARIES {
        let path = beside(library);
        let listing = output_of("nm", &["-D", "--defined-only", path.to_str().expect("path")]);
        let exported: BTreeSet<&str> = listing.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
        assert_eq!(exported, names.iter().copied().collect(), "{library}");
    }
}

#[test]
fn each_library_needs_libc_only_and_no_newer_glibc_than_2_28() {
    for (library, _) in LIBRARIES {
        let path = beside(library);
        let path = path.to_str().expect("path");
        let dynamic = output_of("readelf", &["-dW", path]);
        let named = |what: &str| -> BTreeSet<String> {
            let lines = dynamic.lines().filter(|line| line.contains(what));
            lines.filter_map(|line| Some(line.split_once('[')?.1.split_once(']')?.0.to_owned())).collect()
        };
        assert_eq!(named("(SONAME)"), [library.to_owned()].into());
        // The last two are part of the C library.
        let allowed: BTreeSet<String> = ["libc.so.6", "libdl.so.2", "libpthread.so.0"].map(String::from).into();
        assert!(named("(NEEDED)").is_subset(&allowed), "{library} needs {:?}", named("(NEEDED)"));
        assert!(!dynamic.contains("RPATH") && !dynamic.contains("RUNPATH"), "no path into a build tree");
        let symbols = output_of("nm", &["-D", "--undefined-only", path]);
        for version in symbols.split_whitespace().filter_map(|s| s.split_once("@GLIBC_")).map(|(_, v)| v) {
            let parts: Vec<u32> = version.split('.').filter_map(|n| n.parse().ok()).collect();
            assert!(parts.as_slice() <= [2, 28].as_slice(), "{library} needs GLIBC_{version}");
        }
    }
}

/// Compiles a text without linking it.
#[track_caller]
fn compiles(compiler: &str, flags: &[&str], text: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join(if compiler == "c++" { "text.cc" } else { "text.c" });
    std::fs::write(&source, text).expect("a writable folder");
    let include = root().join("include");
    let out = Command::new(compiler)
        .args(["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I"])
        .arg(include)
        .args(flags)
        .arg(source)
        .output()
        .expect("a compiler");
    assert!(out.status.success(), "{compiler} {flags:?}: {}\n{text}", String::from_utf8_lossy(&out.stderr));
}

const HEADERS: [&str; 7] = ["xsched", "types", "xqueue", "hint", "cuda/hal", "hip/hal", "opencl/hal"];

#[test]
fn each_header_compiles_alone_and_beside_the_others_in_c_and_cpp() {
    let line = |header: &str| format!("#include <xsched/{header}.h>\n");
    let all: String = HEADERS.map(line).concat();
    for text in HEADERS.map(line).iter().chain([&all]) {
        // C wants at least one declaration in a file.
        let text = format!("{text}extern int nothing;\n");
        compiles("cc", &["-std=c99"], &text);
        compiles("c++", &["-std=c++11"], &text);
    }
    // The vendors define their own types, whichever header comes first.
    let vendors = "typedef struct CUstream_st *CUstream;\ntypedef struct ihipStream_t *hipStream_t;\n\
                   typedef struct _cl_command_queue *cl_command_queue;\n";
    compiles("cc", &["-std=c11"], &format!("{vendors}{all}"));
    compiles("cc", &["-std=c11"], &format!("{all}{vendors}"));
}

#[test]
fn the_headers_have_the_values_of_the_implementation() {
    let mut text = String::from("#include <xsched/xsched.h>\n");
    let mut same = |name: &str, value: i64| {
        text += &format!("_Static_assert({name} == {value}, \"{name}\");\n");
    };
    for (name, value) in [
        ("kXSchedSuccess", XResult::SUCCESS),
        ("kXSchedErrorHardware", XResult::HARDWARE),
        ("kXSchedErrorInvalidValue", XResult::INVALID_VALUE),
        ("kXSchedErrorNotFound", XResult::NOT_FOUND),
        ("kXSchedErrorNotAllowed", XResult::NOT_ALLOWED),
        ("kXSchedErrorNotSupported", XResult::NOT_SUPPORTED),
        ("kXSchedErrorBadResponse", XResult::BAD_RESPONSE),
        ("kXSchedErrorUnknown", XResult::UNKNOWN),
    ] {
        same(name, value.0.into());
    }
    for (name, value) in [
        ("kQueueCreateFlagBlockingSubmit", flag::BLOCKING_SUBMIT),
        ("kQueueSuspendFlagSyncHwQueue", flag::SYNC_HW_QUEUE),
        ("kQueueSuspendFlagWaitAll", flag::WAIT_ALL),
        ("kQueueSuspendFlagWaitIdle", flag::WAIT_IDLE),
        ("kQueueResumeFlagDropCommands", flag::DROP_COMMANDS),
        ("kQueueStateIdle", state::IDLE.into()),
        ("kQueueStateReady", state::READY.into()),
        ("kSchedulerAppManaged", scheduler::APP_MANAGED.into()),
        ("kSchedulerLocal", scheduler::LOCAL.into()),
        ("kSchedulerGlobal", scheduler::GLOBAL.into()),
        ("kPreemptLevelBlock", 1),
        ("kPreemptLevelDeactivate", 2),
        ("kPreemptLevelInterrupt", 3),
        ("XSCHED_PRIORITY_NOT_EXECUTED", xsched_capi::types::NOT_EXECUTED.into()),
    ] {
        same(name, value);
    }
    let policies = [
        "HighestPriorityFirst",
        "HeterogeneousHighestPriorityFirst",
        "CPUHighestPriorityFirst",
        "UtilizationPartition",
        "ProcessUtilizationPartition",
        "StrictProcessUtilizationPartition",
        "KEarliestDeadlineFirst",
        "Laxity",
        "ActiveWindowFirst",
        "CompletelyFairScheduler",
        "MultiLevelFeedbackQueue",
    ];
    assert_eq!(policies.len() + 1, POLICIES.len());
    for (at, name) in policies.iter().enumerate() {
        same(&format!("kPolicy{name}"), at as i64 + 1);
    }
    assert_eq!((policy_name(1), policy_name(11)), (Some("hpf"), Some("mlfq")));
    assert_eq!([policy_name(-1), policy_name(0), policy_name(12)], [None; 3]);
    compiles("cc", &["-std=c11"], &text);
}

/// Each function is declared once and has a row in the reference.
#[test]
fn the_headers_and_the_reference_have_every_function() {
    let texts = HEADERS
        .map(|header| std::fs::read_to_string(root().join(format!("include/xsched/{header}.h"))).expect("a header"));
    let page = std::fs::read_to_string(root().join("docs/reference/c-api.md")).expect("the reference");
    let functions =
        page.split_once("\n## Functions").and_then(|(_, rest)| rest.split_once("\n## ")).expect("a section").0;
    let named = |text: &str, before: &str| -> BTreeSet<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(before));
        lines.filter_map(|rest| Some(rest.split_once('(')?.0.to_owned())).collect()
    };
    let there: BTreeSet<String> =
        LIBRARIES.iter().flat_map(|(_, names)| names.iter().copied().map(String::from)).collect();
    assert_eq!(named(&texts.concat(), "XResult "), there);
    assert_eq!(named(functions, "| `"), there);
}
