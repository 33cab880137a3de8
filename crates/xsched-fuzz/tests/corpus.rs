//! Each target with its corpus, and with what comes of each seed by a small change.

use std::path::{Path, PathBuf};

use xsched_fuzz::{TARGETS, Target};

/// Runs of a slow target.
const SLOW_RUNS: usize = 150;
const RUNS: usize = 20_000;

fn seeds(target: &Target) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&folder).expect("a corpus").flatten().map(|e| e.path()).collect();
    paths.sort();
    assert!(paths.len() >= 2, "{} has {} seeds", target.name, paths.len());
    paths.iter().map(|path| std::fs::read(path).expect("a seed")).collect()
}

/// What a seed is with one byte changed, one left out, or cut off there.
fn changed(seed: &[u8], at: usize) -> Vec<Vec<u8>> {
    let mut variants = vec![seed[..at].to_vec(), [&seed[..at], &seed[at + 1..]].concat()];
    for byte in [0, 0xff, seed[at].wrapping_add(1), seed[at] ^ 0x80] {
        let mut variant = seed.to_vec();
        variant[at] = byte;
        variants.push(variant);
    }
    variants
}

#[test]
fn every_target_takes_its_corpus_and_what_is_like_it() {
    for target in TARGETS {
        let seeds = seeds(&target);
        seeds.iter().for_each(|seed| (target.run)(seed));
        let places = seeds.iter().flat_map(|seed| (0..seed.len()).map(move |at| (seed, at)));
        let all: Vec<Vec<u8>> = places.flat_map(|(seed, at)| changed(seed, at)).collect();
        // Spread over all places, where there are too many.
        let step = all.len().div_ceil(if target.slow { SLOW_RUNS } else { RUNS }).max(1);
        all.iter().step_by(step).for_each(|data| (target.run)(data));
        println!("{}: {} seeds, {} like them", target.name, seeds.len(), all.len().div_ceil(step));
    }
}
