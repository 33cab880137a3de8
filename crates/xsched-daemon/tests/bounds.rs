//! Checks that the documentation's page on bounds names every bound, and a test for each.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// Limits that belong to no table: amounts of work at once, numbers of messages and requests, sizes of single words.
const NO_TABLES: [&str; 16] = [
    "CONFIG_MAX_BYTES",
    "ACCOUNTS_STUCK_MAX",
    "EVENTS_MAX",
    "ACCEPTED_MAX",
    "USER_WEIGHT_MAX",
    "USER_TIMESLICE_MAX_US",
    "SIGHT_REST_MAX_NS",
    "CGROUPS_MAX",
    "ANCESTORS_MAX",
    "NAME_MAX_BYTES",
    "POOL_MEMBERS_MAX",
    "POOL_LOG_MAX_BYTES",
    "FAULTS_MAX",
    "POOL_TOLD_MAX",
    "METRICS_DECISION_MAX_NS",
    "METRICS_HEAD_MAX_BYTES",
];

fn sources(folder: &Path, all: &mut String) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|e| e == "rs") {
            all.push_str(&read_to_string(path).expect("a source"));
        }
    }
}

#[test]
fn the_page_names_every_bound_and_a_test_for_each() {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let page = read_to_string(own.join("../../docs/internals/bounds.md")).expect("the page");
    let bounds = ["src/tuning.rs", "../xsched-engine/src/tuning.rs"];
    let tuning =
        bounds.map(|file| read_to_string(own.join(file)).expect("the bounds").replace("pub(crate) const", "pub const"));
    let tuning = tuning.concat();
    let constants: Vec<&str> = tuning
        .lines()
        .filter_map(|line| line.strip_prefix("pub const ")?.split(':').next())
        .filter(|name| name.split('_').any(|word| word == "MAX"))
        .collect();
    let mut code = String::new();
    sources(&own.join("src"), &mut code);
    sources(&own.join("tests"), &mut code);
    sources(&own.join("../xsched-engine/src"), &mut code);
    sources(&own.join("../xsched-engine/tests"), &mut code);
    let table = page.split("## Tables").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("the table");
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| ---"))
        .skip(1)
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert!(rows.len() > 15, "{rows:?}");
    let quoted = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    for row in &rows {
        let [table, bounds, tests] = row.as_slice() else { panic!("{row:?}") };
        for bound in quoted(bounds) {
            assert!(tuning.contains(&format!("pub const {bound}:")), "{table}: there is no {bound}");
        }
        assert!(!quoted(tests).is_empty(), "{table}: no test");
        for test in quoted(tests) {
            assert!(code.contains(&format!("fn {test}()")), "{table}: there is no test {test}");
        }
    }
    let missing = constants.iter().filter(|name| !NO_TABLES.contains(name) && !table.contains(&format!("`{name}`")));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&&str>::new(), "bounds that the page does not name");
}
