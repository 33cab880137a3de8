//! Journals recorded on real devices: the models still answer as they did there.

use std::io::Read;
use std::path::Path;

use xsched_flow::journal::replay;

/// After a wanted difference, the journals are blessed: `cargo xtask replay --bless testing/journals/*.gz`; the commit message says how
/// many answers changed.
#[test]
fn the_models_answer_as_they_did_on_an_h200() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/journals");
    let mut asks = std::collections::BTreeMap::<&str, u64>::new();
    let mut files = 0;
    for entry in std::fs::read_dir(&folder).expect("the journals").flatten() {
        if entry.path().extension().is_none_or(|end| end != "gz") {
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        let packed = std::fs::read(entry.path()).expect("a journal");
        assert!(packed.len() <= 1 << 20, "{name} has {} bytes, more than 1 MiB", packed.len());
        let mut journal = Vec::new();
        flate2::read::GzDecoder::new(&*packed).read_to_end(&mut journal).expect("gzip");
        let found = replay(&journal).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(found.differences(), 0, "{name}: {:#?}", found.first);
        found.models.iter().for_each(|(model, (all, _))| *asks.entry(model).or_default() += all);
        files += 1;
    }
    assert!(files >= 8, "{files} journals");
    let models: Vec<&str> = asks.keys().copied().collect();
    assert_eq!(models, ["activity", "admission", "estimate", "timeline", "watchdog"]);
    assert!(asks.values().all(|n| *n > 1_000), "{asks:?}");
}
