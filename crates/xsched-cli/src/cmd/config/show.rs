//! Values of the configuration, with their places.

use std::path::PathBuf;

use serde::Serialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use xsched_proto::text::escaped;

use super::keys::keys;
use crate::failure::{Error, Result};

/// Value of a key.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Set {
    /// Key, such as `limits.max_class`, or `rule[1].exe`; rules are numbered in the order in which they are tried.
    key: String,
    /// Value in TOML.
    value: String,
    /// File and line; none = the default.
    from: Option<String>,
}

/// Values in force: all that files set, and the defaults of the others.
pub(super) fn values(paths: &[PathBuf]) -> Result<Vec<Set>> {
    let mut set: Vec<Set> = Vec::new();
    let mut rules: Vec<Vec<Set>> = Vec::new();
    for path in paths {
        let shown = path.display();
        let text = std::fs::read_to_string(path).map_err(|e| Error::input(format!("cannot read {shown}: {e}")))?;
        let table = DeTable::parse(&text).map_err(|e| Error::input(format!("{shown}: {}", e.message())))?;
        let place = |at: usize| format!("{shown}:{}", 1 + text[..at.min(text.len())].matches('\n').count());
        let mut of_file = Vec::new();
        for (key, value) in table.get_ref() {
            match (&**key.get_ref(), value.get_ref()) {
                ("rule", DeValue::Array(list)) => {
                    let mut own: Vec<Vec<Set>> = Vec::new();
                    for rule in list.iter() {
                        let mut keys = Vec::new();
                        flatten("", rule, &text, &place, &mut keys);
                        own.push(keys);
                    }
                    // Rules of a later file are tried first.
                    rules.splice(0..0, own);
                }
                // Parameters of a policy belong to the file that sets the policy.
                (name, _) => flatten(name, value, &text, &place, &mut of_file),
            }
        }
        if of_file.iter().any(|new| new.key == "policy") {
            set.retain(|old| !old.key.starts_with("parameters"));
        }
        set.retain(|old| of_file.iter().all(|new| new.key != old.key));
        set.extend(of_file);
    }
    for key in keys() {
        let name = if key.table.is_empty() { key.name } else { format!("{}.{}", key.table, key.name) };
        let has_default = ["", "limits", "pool", "yield"].contains(&key.table.as_str()) && !key.default.is_empty();
        if has_default && set.iter().all(|known| known.key != name) {
            set.push(Set { key: name, value: key.default, from: None });
        }
    }
    set.sort_by(|a, b| (a.key.contains('.'), &a.key).cmp(&(b.key.contains('.'), &b.key)));
    for (number, rule) in rules.into_iter().enumerate() {
        set.extend(rule.into_iter().map(|s| Set { key: format!("rule[{}].{}", number + 1, s.key), ..s }));
    }
    Ok(set)
}

fn flatten(name: &str, value: &Spanned<DeValue<'_>>, text: &str, place: &impl Fn(usize) -> String, out: &mut Vec<Set>) {
    match value.get_ref() {
        DeValue::Table(table) => {
            for (key, value) in table {
                let key: &str = key.get_ref();
                let is_bare = key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
                let key = if is_bare { key.to_owned() } else { format!("{key:?}") };
                let name = if name.is_empty() { key } else { format!("{name}.{key}") };
                flatten(&name, value, text, place, out);
            }
        }
        _ => {
            let span = value.span();
            let written = text.get(span.clone()).unwrap_or_default().to_owned();
            out.push(Set { key: name.to_owned(), value: written, from: Some(place(span.start)) });
        }
    }
}

/// Text with a line for each value.
pub(super) fn text(values: &[Set]) -> String {
    let lines: Vec<String> =
        values.iter().map(|set| format!("{} = {}", escaped(&set.key), escaped(&set.value))).collect();
    let longest = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0).min(48);
    let line = |(line, set): (&String, &Set)| {
        format!("{line:<longest$}  # {}\n", escaped(set.from.as_deref().unwrap_or("default")))
    };
    lines.iter().zip(values).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_from_the_last_file_that_has_it_and_rules_stand_in_the_order_in_which_they_are_tried() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let first =
            file("a", "policy = \"kedf\"\nparameters = { k = 2 }\nbudget_us = 900\n[[rule]]\nexe = \"a\"\nlevel = 1\n");
        let second =
            file("b", "\npolicy = \"up\"\n[devices.\"sim:0\"]\npolicy = \"hpf\"\n[[rule]]\nexe = \"b\"\nlevel = 2\n");
        let shown = text(&values(&[first.clone(), second.clone()]).unwrap());
        let has = |line: &str, from: &str| {
            let found =
                shown.lines().find(|l| l.starts_with(&format!("{line} "))).unwrap_or_else(|| panic!("{line}: {shown}"));
            assert!(found.ends_with(&format!("  # {from}")), "{found}");
        };
        has("policy = \"up\"", &format!("{}:2", second.display()));
        has("budget_us = 900", &format!("{}:3", first.display()));
        has("devices.\"sim:0\".policy = \"hpf\"", &format!("{}:4", second.display()));
        has("limits.max_class = high", "default");
        has("rule[1].exe = \"b\"", &format!("{}:6", second.display()));
        has("rule[2].level = 1", &format!("{}:6", first.display()));
        assert!(!shown.contains("parameters.k"), "they were of another policy: {shown}");
    }
}
