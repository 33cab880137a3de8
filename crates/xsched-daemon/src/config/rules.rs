//! Detection of rules that no program can match.

use std::path::Path;

use super::Rule;

impl Rule {
    /// Reports whether another rule has all of this rule's conditions: this rule then matches whatever the other one does.
    fn covers(&self, other: &Rule) -> bool {
        let same = |own: &Option<String>, its: &Option<String>| own.is_none() || own == its;
        same(&self.exe, &other.exe)
            && same(&self.script, &other.script)
            && same(&self.command, &other.command)
            && same(&self.cgroup, &other.cgroup)
            && same(&self.container, &other.container)
            && same(&self.pod, &other.pod)
            && same(&self.namespace, &other.namespace)
            && (self.user.is_none() || self.user == other.user)
    }

    /// Reason for which the rule can match nothing by itself, if there is one.
    fn contradiction(&self) -> Option<String> {
        if let Some(cgroup) = self.cgroup.as_deref().filter(|path| !path.starts_with(['/', '*'])) {
            return Some(format!("a cgroup's path begins with a slash, and \"{cgroup}\" does not"));
        }
        if let Some(script) = self.script.as_deref().filter(|name| name.contains('/')) {
            return Some(format!("a script is told by its file name, and \"{script}\" is a path: use exe or command"));
        }
        let exe = self.exe.as_deref().filter(|exe| exe.starts_with('/') && !exe.contains('*'))?;
        let resolved = Path::new(exe).canonicalize().ok().filter(|resolved| resolved != Path::new(exe))?;
        let name = exe.rsplit('/').next().unwrap_or(exe);
        Some(format!("{exe} is a link to {}: use that, or the name \"{name}\"", resolved.display()))
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
