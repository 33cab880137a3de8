//! libFuzzer with the target that the variable XSCHED_FUZZ_TARGET names.
#![no_main]

use std::sync::LazyLock;

use xsched_fuzz::{TARGETS, Target};

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("XSCHED_FUZZ_TARGET").expect("XSCHED_FUZZ_TARGET names a target");
    *TARGETS.iter().find(|target| target.name == name).expect("a target of this name")
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| (TARGET.run)(data));
