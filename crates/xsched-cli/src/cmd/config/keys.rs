//! Keys of the configuration, from the page of the reference that a test compares with the code.

use crate::reference;

const PAGE: &str = include_str!("../../../../../docs/reference/configuration.md");

/// Key of the configuration.
#[derive(Debug)]
pub(super) struct Key {
    /// Table of the key: none for the top level, `limits`, `limits.users.NAME`, `rule`.
    pub(super) table: String,
    pub(super) name: String,
    /// Accepted values, in the words of the page.
    pub(super) values: String,
    pub(super) default: String,
    pub(super) about: String,
}

/// All keys, in the order of the page.
pub(super) fn keys() -> Vec<Key> {
    let mut keys: Vec<Key> = Vec::new();
    for heading in PAGE.lines().filter_map(|line| line.strip_prefix("## ")) {
        let table = match heading {
            "Top level" => "",
            other => other.trim_matches(['`', '[', ']']),
        };
        for row in reference::rows(PAGE, heading) {
            let [names, values, default, about] = &row[..] else { continue };
            for name in names.split(", ") {
                let same = (values == "as above")
                    .then(|| keys.iter().find(|k| k.table == "limits" && in_code(name) == k.name));
                let values = same.flatten().map_or_else(|| values.clone(), |key| key.values.clone());
                keys.push(Key {
                    table: table.to_owned(),
                    name: in_code(name).to_owned(),
                    values,
                    default: reference::bare(default),
                    about: reference::bare(about),
                });
            }
        }
    }
    keys
}

fn in_code(name: &str) -> &str {
    name.trim_matches('`')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_with_what_they_accept() {
        let keys = keys();
        let find = |table: &str, name: &str| keys.iter().find(|key| key.table == table && key.name == name).unwrap();
        assert_eq!(find("", "budget_us").default, "500");
        assert_eq!(find("limits.users.NAME", "jobs").values, "1..1000000");
        assert_eq!(find("rule", "script").values, "name");
        assert!(find("rule", "slo").values.contains("hints"));
        assert!(keys.len() > 50);
    }
}
