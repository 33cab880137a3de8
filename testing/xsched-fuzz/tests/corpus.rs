//! Runs each target on its corpus, on small changes of each seed, and on random mixtures of seeds.

use std::path::{Path, PathBuf};

use xsched_fuzz::{TARGETS, Target};
use xsched_testkit::Random;

/// Number of runs of a slow target.
const SLOW_RUNS: usize = 150;
const RUNS: usize = 20_000;

fn seeds(target: &Target) -> Vec<Vec<u8>> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(target.seeds()).expect("a corpus").flatten().map(|e| e.path()).collect();
    paths.sort();
    assert!(paths.len() >= 2, "{} has {} seeds", target.name, paths.len());
    paths.iter().map(|path| std::fs::read(path).expect("a seed")).collect()
}

/// Variants of a seed: one byte changed, removed, or the text cut off there.
fn changed(seed: &[u8], at: usize) -> Vec<Vec<u8>> {
    let mut variants = vec![seed[..at].to_vec(), [&seed[..at], &seed[at + 1..]].concat()];
    for byte in [0, 0xff, seed[at].wrapping_add(1), seed[at] ^ 0x80] {
        let mut variant = seed.to_vec();
        variant[at] = byte;
        variants.push(variant);
    }
    variants
}

/// Joins the beginning of one seed to the end of another, and changes some bytes.
fn mixed(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let [first, last] = [0, 1].map(|_| &seeds[random.below(seeds.len())]);
    let mut data = first[..random.below(first.len() + 1)].to_vec();
    data.extend(&last[random.below(last.len() + 1)..]);
    for _ in 0..random.below(8).min(data.len()) {
        let at = random.below(data.len());
        data[at] = random.below(256) as u8;
    }
    data
}

#[test]
fn every_target_takes_its_corpus_and_what_is_like_it() {
    for target in TARGETS {
        let seeds = seeds(&target);
        seeds.iter().for_each(|seed| (target.run)(seed));
        let places = seeds.iter().flat_map(|seed| (0..seed.len()).map(move |at| (seed, at)));
        let mut all: Vec<Vec<u8>> = places.flat_map(|(seed, at)| changed(seed, at)).collect();
        let mut random = Random(1);
        all.extend((0..all.len()).map(|_| mixed(&seeds, &mut random)));
        if !target.words.is_empty() {
            let by_words = (0..1_000).map(|n| xsched_fuzz::changed(&seeds[n as usize % seeds.len()], target.words, n));
            all.extend(by_words);
        }
        // If there are too many variants, every n-th one is run.
        let step = all.len().div_ceil(if target.slow { SLOW_RUNS } else { RUNS }).max(1);
        all.iter().step_by(step).for_each(|data| (target.run)(data));
        println!("{}: {} seeds, {} like them", target.name, seeds.len(), all.len().div_ceil(step));
    }
}

/// Checks that the daemon accepts the seeds: variants of a seed that is refused at its first line would test nothing more.
#[test]
fn seeds_of_the_configuration_are_taken() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for name in ["classes", "rules"] {
        let said = xsched_daemon::check_config(&[folder.join("config").join(name)]);
        assert_eq!(said.map_err(|why| why.to_string()), Ok(Vec::new()), "{name}");
    }
}
