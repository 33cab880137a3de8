//! Bugs planted on request: a test of the fuzzer itself, which must find each of them.

/// Variable that plants a bug in every target, as a test of the fuzzer.
pub const PLANTED: &str = "XSCHED_FUZZ_PLANTED";

/// Bug that exists only if asked for. `reached` is true after bytes that no seed has, behind the checks of the tested function.
pub(crate) fn planted(reached: impl FnOnce() -> bool) {
    static ASKED: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| std::env::var_os(PLANTED).is_some());
    assert!(!*ASKED || !reached(), "the planted bug");
}
