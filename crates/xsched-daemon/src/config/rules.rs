//! Detection of rules that no program can match.

use std::path::Path;

use xsched_proto::class::Class;

use super::Rule;
use crate::config::glob::glob;

impl Rule {
    /// Reports whether this rule matches whatever the other one does.
    fn covers(&self, other: &Rule) -> bool {
        // A pattern that matches another pattern as a text matches all texts that the other one does.
        let wider = |own: &Option<String>, its: &Option<String>| match (own, its) {
            (None, _) => true,
            (Some(own), Some(its)) => glob(own, its),
            (Some(_), None) => false,
        };
        // A container has several names, and a part of its id is one.
        let same = |own: &Option<String>, its: &Option<String>| own.is_none() || own == its;
        let every = |pattern: &Option<String>| pattern.as_deref().is_none_or(is_every);
        (every(&self.exe) || self.exe.as_deref().zip(other.exe.as_deref()).is_some_and(|(own, its)| runs_all(own, its)))
            && (every(&self.cgroup) || wider(&self.cgroup, &other.cgroup))
            && wider(&self.script, &other.script)
            && wider(&self.command, &other.command)
            && same(&self.container, &other.container)
            && same(&self.pod, &other.pod)
            && same(&self.namespace, &other.namespace)
            && (self.user.is_none() || self.user == other.user)
    }

    /// Reason for which the rule can match nothing by itself, if there is one.
    fn contradiction(&self) -> Option<String> {
        let texts = [
            ("exe", &self.exe),
            ("script", &self.script),
            ("command", &self.command),
            ("cgroup", &self.cgroup),
            ("container", &self.container),
            ("pod", &self.pod),
            ("namespace", &self.namespace),
        ];
        if let Some((key, _)) = texts.iter().find(|(_, text)| text.as_deref() == Some("")) {
            return Some(format!("{key} = \"\" is a condition that nothing fulfils: leave it out"));
        }
        if let Some(cgroup) = self.cgroup.as_deref().filter(|path| !path.starts_with(['/', '*'])) {
            return Some(format!("a cgroup's path begins with a slash, and \"{cgroup}\" does not"));
        }
        if let Some(script) = self.script.as_deref().filter(|name| name.contains('/')) {
            return Some(format!("a script is told by its file name, and \"{script}\" is a path: use exe or command"));
        }
        let exe = self.exe.as_deref()?;
        let name = exe.rsplit('/').next().unwrap_or(exe);
        if exe.contains('/') && !exe.starts_with(['/', '*']) {
            let cure = if name.is_empty() { String::new() } else { format!(", or the name \"{name}\"") };
            return Some(format!(
                "an executable's path begins with a slash, and \"{exe}\" does not: use the whole path{cure}"
            ));
        }
        if exe.starts_with('/') && !exe.contains('*') {
            if name.is_empty() {
                return Some(format!("\"{exe}\" is a folder: use \"{exe}*\" for all below it"));
            }
            let resolved = Path::new(exe).canonicalize().ok().filter(|resolved| resolved != Path::new(exe))?;
            return Some(format!("{exe} is a link to {}: use that, or the name \"{name}\"", resolved.display()));
        }
        None
    }

    /// Part of the rule that the rest of it takes back, if there is one.
    pub(super) fn without_effect(&self) -> Option<String> {
        let (priority, ceiling) = (self.priority?.0, self.ceiling?.0);
        (priority > ceiling).then(|| {
            let named = |priority: i32| format!("{priority} ({})", Class::of(priority));
            format!("the ceiling {} is below the priority {}: the ceiling counts", named(ceiling), named(priority))
        })
    }
}

/// Reports whether a pattern matches any text.
fn is_every(pattern: &str) -> bool {
    !pattern.is_empty() && pattern.bytes().all(|byte| byte == b'*')
}

/// Reports whether the pattern of an executable, `wide`, matches all that another one does. A pattern without a slash means file names,
/// too.
fn runs_all(wide: &str, narrow: &str) -> bool {
    let file = narrow.rsplit('/').next().filter(|file| narrow.contains('/') && !file.contains('*'));
    match (wide.contains('/'), narrow.contains('/')) {
        (true, false) => false,
        (false, true) => glob(wide, narrow) || file.is_some_and(|file| glob(wide, file)),
        _ => glob(wide, narrow),
    }
}

/// Finds rules among the first `added` ones that never match, and returns their places and the reasons.
pub(super) fn unmatched(rules: &[Rule], added: usize) -> impl Iterator<Item = (usize, String)> + '_ {
    let why = |at: usize| {
        let rule = &rules[at];
        let shadow = rules[..at].iter().any(|before| before.covers(rule));
        let why = rule.contradiction();
        why.or_else(|| shadow.then(|| "the rule before it, or one further up, matches all that it does".to_owned()))
    };
    (0..added.min(rules.len())).filter_map(move |at| Some((at, format!("this rule never matches: {}", why(at)?))))
}
