//! Values of the configuration, with their places.

use std::path::PathBuf;

use serde::Serialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use xsched_policy::Choice;
use xsched_proto::text::escaped;
use xsched_proto::wire::{DaemonMsg, Request};

use super::keys::keys;
use crate::client;
use crate::failure::{Error, Result};

/// Value of a key.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Set {
    /// Key, such as `limits.max_class`, or `rule[1].exe`; rules are numbered in the order in which they are tried.
    key: String,
    /// Value in TOML.
    value: String,
    /// Source: file and line, or what has set it since; none = the default.
    from: Option<String>,
}

/// Policies that a daemon runs: a command may have set them, or the daemon has not read the files since they changed.
#[derive(Debug, Default)]
pub(super) struct Running {
    /// Process id of the daemon; none = none runs, or it does not answer.
    pid: Option<u32>,
    /// Policies with their parameters; none as the device = devices without one of their own.
    policies: Vec<(Option<String>, String)>,
    /// Lines of the daemon on policies that are not the configuration's.
    notes: Vec<String>,
}

impl Running {
    /// Asks the daemon that commands find.
    pub(super) fn ask() -> Running {
        let ask = |request| client::ask(None, request).unwrap_or_default();
        let mut running = Running::default();
        for part in ask(Request::Ps) {
            if let DaemonMsg::Daemon(daemon) = part {
                running.pid = Some(daemon.pid);
                running.policies.push((None, daemon.policy));
                running.policies.extend(daemon.device_policies.into_iter().map(|(key, policy)| (Some(key), policy)));
            }
        }
        if running.pid.is_some() {
            let notes = ask(Request::PolicyList).into_iter();
            running
                .notes
                .extend(notes.filter_map(|p| if let DaemonMsg::Note { text } = p { Some(text) } else { None }));
        }
        running
    }

    /// Replaces the policies of the files by those in force, where they differ.
    fn correct(&self, set: &mut Vec<Set>) {
        for (device, policy) in &self.policies {
            let table = device.as_ref().map_or(String::new(), |device| format!("devices.{device:?}."));
            let (key, parameters) = (format!("{table}policy"), format!("{table}parameters"));
            let here = |set: &Set| set.key == key || set.key.starts_with(&format!("{parameters}."));
            let of_files = set.iter().find(|set| set.key == key).map(|set| (set.value.clone(), set.from.clone()));
            let text = of_files.as_ref().map(|(name, _)| {
                let name = name.trim_matches(['"', '\'']);
                let given = set.iter().filter_map(|set| {
                    let name = set.key.strip_prefix(&format!("{parameters}."))?;
                    Some((name, set.value.trim_matches(['"', '\''])))
                });
                Choice::with(name, given).map_or_else(|_| name.to_owned(), |choice| choice.to_string())
            });
            if text.as_ref() == Some(policy) {
                continue;
            }
            let on = device.as_ref().map_or(String::new(), |device| format!(" on {device}"));
            let begin = format!("policy {policy}{on}: ");
            let by = self.notes.iter().rev().find_map(|note| note.strip_prefix(&begin)).map(str::to_owned);
            let by = by.unwrap_or_else(|| {
                let pid = self.pid.unwrap_or_default();
                format!("daemon {pid}, which has not read the files since: `xsched daemon` reads them on SIGHUP")
            });
            let from = match of_files.and_then(|(value, from)| Some((value, from?))) {
                Some((value, from)) => format!("{by}; {from}: {value}"),
                None => by,
            };
            set.retain(|set| !here(set));
            let mut words = policy.split(' ');
            let name = words.next().unwrap_or_default();
            set.push(Set { key, value: format!("{name:?}"), from: Some(from.clone()) });
            for (name, value) in words.filter_map(|word| word.split_once('=')) {
                let value = if value.parse::<i64>().is_ok() { value.to_owned() } else { format!("{value:?}") };
                set.push(Set { key: format!("{parameters}.{name}"), value, from: Some(from.clone()) });
            }
        }
    }
}

/// Values in force: all that files set, the defaults of the others, and the policies that a daemon runs.
pub(super) fn values(paths: &[PathBuf], running: &Running) -> Result<Vec<Set>> {
    let mut set: Vec<Set> = Vec::new();
    let mut rules: Vec<Vec<Set>> = Vec::new();
    for path in paths {
        let shown = path.display();
        let text = xsched_daemon::config_text(path)?;
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
        let has_default =
            ["", "limits", "pool", "yield", "memory"].contains(&key.table.as_str()) && !key.default.is_empty();
        if has_default && set.iter().all(|known| known.key != name) {
            set.push(Set { key: name, value: key.default, from: None });
        }
    }
    running.correct(&mut set);
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
        let shown = text(&values(&[first.clone(), second.clone()], &Running::default()).unwrap());
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

    #[test]
    fn a_policy_that_was_set_at_run_time_is_shown_with_its_source() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        std::fs::write(&file, "policy = \"kedf\"\nparameters = { k = 2 }\n").unwrap();
        let shown = |policies: &[(Option<&str>, &str)], notes: &[&str]| {
            let policies = policies.iter().map(|(device, policy)| (device.map(str::to_owned), (*policy).to_owned()));
            let notes = notes.iter().map(|note| (*note).to_owned()).collect();
            let running = Running { pid: Some(7), policies: policies.collect(), notes };
            let values = values(std::slice::from_ref(&file), &running).unwrap();
            values
                .into_iter()
                .filter(|set| set.key.contains("policy") || set.key.contains("parameters"))
                .collect::<Vec<_>>()
        };
        let set =
            |key: &str, value: &str, from: &str| Set { key: key.into(), value: value.into(), from: Some(from.into()) };
        let at = file.display();
        let as_given = [set("policy", "\"kedf\"", &format!("{at}:1")), set("parameters.k", "2", &format!("{at}:2"))];
        assert_eq!(shown(&[(None, "kedf k=2")], &[]), as_given);
        assert_eq!(shown(&[], &[]), as_given, "without a daemon the files are all there is");
        let note = "policy up on sim:0: by xsched policy set, in place of kedf k=2";
        let with_device = shown(&[(None, "kedf k=2"), (Some("sim:0"), "up")], &[note]);
        assert_eq!(
            with_device[1],
            set("devices.\"sim:0\".policy", "\"up\"", "by xsched policy set, in place of kedf k=2")
        );
        let note = "policy mlfq recovery=periodic: by xsched policy set, in place of kedf k=2";
        let by = format!("by xsched policy set, in place of kedf k=2; {at}:1: \"kedf\"");
        assert_eq!(
            shown(&[(None, "mlfq recovery=periodic")], &[note]),
            [set("policy", "\"mlfq\"", &by), set("parameters.recovery", "\"periodic\"", &by)]
        );
        let unread = shown(&[(None, "up")], &[]);
        assert!(
            unread[0].from.as_deref().unwrap().starts_with("daemon 7, which has not read the files since"),
            "{unread:?}"
        );
    }
}
