//! libFuzzer with the target that the variable XSCHED_FUZZ_TARGET names.
#![no_main]

use std::sync::LazyLock;

use xsched_fuzz::{TARGETS, Target};

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("XSCHED_FUZZ_TARGET").expect("XSCHED_FUZZ_TARGET names a target");
    *TARGETS.iter().find(|target| target.name == name).expect("a target of this name")
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| (TARGET.run)(data));

/// Seeds of a target that reads text. Most mutated texts are refused at some line, and the more mutations they have had, the more of them:
/// so half of the mutations by words start from a seed again.
static SEEDS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let entries = std::fs::read_dir(TARGET.seeds()).expect("a folder of seeds");
    entries.map(|entry| std::fs::read(entry.expect("an entry").path()).expect("a seed")).collect()
});

// One third of the mutations of a text change bytes, the others words.
libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    if TARGET.words.is_empty() || seed % 3 == 0 {
        return libfuzzer_sys::fuzzer_mutate(data, size, max_size);
    }
    let text = if seed % 3 == 1 { &SEEDS[seed as usize / 3 % SEEDS.len()] } else { &data[..size] };
    let changed = xsched_fuzz::changed(text, TARGET.words, seed);
    let length = changed.len().min(max_size);
    data[..length].copy_from_slice(&changed[..length]);
    length
});
