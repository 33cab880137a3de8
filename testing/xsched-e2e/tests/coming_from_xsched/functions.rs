//! Trials of the functions of the C interface.

use std::path::Path;
use std::process::Command;

use xsched_e2e::{Place, finish};

use crate::{all_are_tried, markdown};

/// Functions of the C interface, by header.
const FUNCTIONS: [(&str, &[&str]); 5] = [
    (
        "hint.h",
        &[
            "XHintSetScheduler",
            "XHintPriority",
            "XHintUtilization",
            "XHintTimeslice",
            "XHintLaxity",
            "XHintDeadline",
            "XHintKDeadline",
        ],
    ),
    (
        "xqueue.h",
        &[
            "XQueueCreate",
            "XQueueDestroy",
            "XQueueGet",
            "XQueueSetPreemptLevel",
            "XQueueSetLaunchConfig",
            "XQueueSubmit",
            "XQueueWait",
            "XQueueWaitAll",
            "XQueueQuery",
            "XQueueSuspend",
            "XQueueResume",
            "XQueueProfileHwCommandCount",
            "HwQueueDestroy",
            "HwQueueLaunch",
            "HwQueueSynchronize",
            "HwCommandCreateCallback",
            "HwCommandDestroy",
        ],
    ),
    ("cuda/hal.h", &["CudaQueueCreate", "CudaQueueGet"]),
    ("hip/hal.h", &["HipQueueCreate"]),
    ("opencl/hal.h", &["OclQueueCreate"]),
];

/// Every function of the page is declared, and called by a program of `testing/programs/capi`, which the tests of the C interface run.
#[test]
fn functions_of_the_original_are_on_the_page_declared_and_called() {
    all_are_tried("Functions", FUNCTIONS.iter().flat_map(|(_, names)| names.iter().copied()));
    let place = Place::new();
    let root = markdown::root();
    let programs = programs(&root.join("testing/programs/capi"));
    for (header, names) in FUNCTIONS {
        let pointers: String = names.iter().map(|name| format!("(void *){name}, ")).collect();
        let source = place.join("names.c");
        let text = format!("#include <xsched/{header}>\nvoid *const names[] = {{ {pointers}0 }};\n");
        std::fs::write(&source, text).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-Wall", "-Werror", "-fsyntax-only", "-I"]).arg(root.join("include")).arg(&source);
        cc.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let done = finish(cc.spawn().unwrap(), xsched_e2e::TIMEOUT);
        assert!(done.status.success(), "{header}: {}", String::from_utf8_lossy(&done.stderr));
        for name in names {
            assert!(programs.contains(&format!("{name}(")), "no program of testing/programs/capi calls {name}");
        }
    }
}

/// Sources of a folder, concatenated; empty if there is none.
fn programs(folder: &Path) -> String {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| std::fs::read_to_string(file.path()).ok()).collect()
}
