//! Environment variables: their names, the values they accept, and the message for a misspelt one.
//!
//! Functions here that read the environment of a program do so by [`get`], which reads nothing in a secure execution.

use std::collections::BTreeSet;
use std::ffi::OsString;

use crate::similar::distance;

/// Prefix of all names.
pub const PREFIX: &str = "XSCHED_";

/// Values that a variable accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    /// Anything: the code that reads the variable checks it.
    Any,
    /// On or off, see [`flag`].
    Flag,
    /// A word of this list, in upper or lower case.
    Words(&'static [&'static str]),
}

use Values::{Any, Flag, Words};

/// All variables, sorted by name.
pub(crate) const ALL: &[(&str, Values)] = &[
    ("XSCHED_ACTIVE", Any),
    ("XSCHED_ASCEND_LIB", Any),
    ("XSCHED_AUTO_XQUEUE", Any),
    ("XSCHED_AUTO_XQUEUE_BATCH_SIZE", Any),
    ("XSCHED_AUTO_XQUEUE_DEADLINE", Any),
    ("XSCHED_AUTO_XQUEUE_KDEADLINE", Any),
    ("XSCHED_AUTO_XQUEUE_LAXITY", Any),
    ("XSCHED_AUTO_XQUEUE_LEVEL", Any),
    ("XSCHED_AUTO_XQUEUE_PRIORITY", Any),
    ("XSCHED_AUTO_XQUEUE_THRESHOLD", Any),
    ("XSCHED_AUTO_XQUEUE_TIMESLICE", Any),
    ("XSCHED_AUTO_XQUEUE_UTILIZATION", Any),
    ("XSCHED_BIN", Any),
    ("XSCHED_COMPLETE", Any),
    ("XSCHED_CUDA_LIB", Any),
    ("XSCHED_CUDA_LV3_IMPL", Any),
    ("XSCHED_CUDLA_LIB", Any),
    ("XSCHED_DISABLE", Flag),
    ("XSCHED_DOMAINS", Words(&["off", "report", "ahead", "exempt"])),
    ("XSCHED_FOLLOW", Flag),
    ("XSCHED_FORCE_LEVEL", Any),
    ("XSCHED_GRAPH_GATES", Flag),
    ("XSCHED_HIP_LIB", Any),
    ("XSCHED_JOB", Any),
    ("XSCHED_JOURNAL", Any),
    ("XSCHED_LEVELZERO_LIB", Any),
    ("XSCHED_LOG", Any),
    ("XSCHED_MEMORY", Words(&["swap"])),
    ("XSCHED_MEMORY_IDLE", Any),
    ("XSCHED_MEMORY_LIMIT", Any),
    ("XSCHED_MEMORY_MOVES", Any),
    ("XSCHED_MEMORY_RESERVE", Any),
    ("XSCHED_NO_DAEMON", Flag),
    ("XSCHED_OPENCL_LIB", Any),
    ("XSCHED_PASSTHROUGH_CONFIG", Any),
    ("XSCHED_PASSTHROUGH_LIBS", Any),
    ("XSCHED_PLATFORMS", Any),
    ("XSCHED_POLICY", Any),
    ("XSCHED_POOL", Any),
    ("XSCHED_POOL_TIMESLICE_US", Any),
    ("XSCHED_PRELOAD", Any),
    ("XSCHED_PRIORITY", Any),
    ("XSCHED_PYTHON_ENSURED", Any),
    ("XSCHED_REQUIRE", Flag),
    ("XSCHED_RUN", Any),
    ("XSCHED_SCHEDULER", Any),
    ("XSCHED_SCHEDULER_HOST", Any),
    ("XSCHED_SHARE", Words(&["time", "pool", "spatial", "auto"])),
    ("XSCHED_SLO", Any),
    ("XSCHED_SOCKET", Any),
    ("XSCHED_STATS", Any),
    ("XSCHED_SYSFS", Any),
    ("XSCHED_TOLD", Flag),
    ("XSCHED_TOLD_OF", Any),
    ("XSCHED_VERBOSE", Flag),
    ("XSCHED_VPI_LIB", Any),
    ("XSCHED_WEIGHT", Any),
    ("XSCHED_YIELD", Flag),
];

/// Reports whether the kernel started this program with rights that its starter lacks. The environment must not be followed then.
pub fn is_secure() -> bool {
    // SAFETY: reads a word that the kernel gave this process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Names of all variables, sorted.
pub fn all() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|(name, _)| *name)
}

/// Value of a variable of this process; none where it is empty, and in a secure execution.
pub fn get(name: &str) -> Option<OsString> {
    if is_secure() { None } else { std::env::var_os(name).filter(|value| !value.is_empty()) }
}

/// Value of a variable of this process, as [`get`] returns it, where it is valid UTF-8.
pub fn text(name: &str) -> Option<String> {
    get(name)?.into_string().ok()
}

/// Names of the variables of this process that begin with [`PREFIX`]; none in a secure execution.
pub fn names() -> Vec<String> {
    if is_secure() {
        return Vec::new();
    }
    std::env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(|name| name.starts_with(PREFIX))
        .collect()
}

/// Reports whether a variable of this process is set to a word for on.
pub fn is_on(name: &str) -> bool {
    text(name).is_some_and(|value| flag(&value) == Some(true))
}

/// Reports whether `XSCHED_DISABLE` switches everything off. An unclear value does too: with the library switched on against the user's
/// wish, nothing could take it back.
pub fn is_disabled() -> bool {
    get("XSCHED_DISABLE").is_some_and(|value| value.to_str().and_then(flag) != Some(false))
}

/// Reads a word for on or off; none = it is neither.
pub fn flag(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "on" | "yes" | "true" => Some(true),
        "0" | "off" | "no" | "false" => Some(false),
        _ => None,
    }
}

/// Checks flags and words, and returns a line `NAME=VALUE: use …` for each value that is not accepted.
pub(crate) fn faults(var: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, values) in ALL {
        let Some(value) = var(name).filter(|value| !value.is_empty()) else { continue };
        let accepted = match values {
            Any => continue,
            Flag if flag(&value).is_some() => continue,
            Flag => "1 or 0".to_owned(),
            Words(words) if words.iter().any(|word| word.eq_ignore_ascii_case(&value)) => continue,
            Words(words) => match words.split_last() {
                Some((last, [])) => (*last).to_owned(),
                Some((last, others)) => format!("{} or {last}", others.join(", ")),
                None => String::new(),
            },
        };
        faults.push(format!("{name}={value}: use {accepted}"));
    }
    faults
}

/// Finds names that begin with [`PREFIX`] and are no variable of xsched, and returns each with a line about it.
pub(crate) fn unknown(names: impl IntoIterator<Item = String>) -> Vec<(String, String)> {
    let is_unknown = |name: &String| name.starts_with(PREFIX) && all().all(|known| known != name);
    // Sorted, since the order of the environment means nothing.
    let unknown: BTreeSet<String> = names.into_iter().filter(is_unknown).collect();
    let line = |name: &String| match nearest(name) {
        Some(known) => format!("{name} is no variable of xsched: did you mean {known}?"),
        None => format!("{name} is no variable of xsched"),
    };
    unknown.into_iter().map(|name| (name.clone(), line(&name))).collect()
}

/// Variable that was probably meant: the nearest name if it is near enough, else one with the same end.
fn nearest(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_uppercase();
    let rest = name.strip_prefix(PREFIX)?;
    let (distance, known) = all().map(|known| (distance(rest, &known[PREFIX.len()..]), known)).min()?;
    if distance <= 1 + rest.len() / 5 {
        return Some(known);
    }
    let tail = format!("_{rest}");
    all().find(|known| known.ends_with(&tail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hint::Hint;

    #[test]
    fn a_misspelt_name_is_told_with_the_nearest() {
        let line = |name: &str| unknown([name.to_owned()]).pop().map(|(_, line)| line);
        for (name, meant) in [
            ("XSCHED_DISABEL", "XSCHED_DISABLE"),
            ("XSCHED_AUTO_XQUEUE_PRIORTY", "XSCHED_AUTO_XQUEUE_PRIORITY"),
            ("XSCHED_PRIORTIY", "XSCHED_PRIORITY"),
            ("XSCHED_PLATFORM", "XSCHED_PLATFORMS"),
            ("XSCHED_TIMESLICE", "XSCHED_AUTO_XQUEUE_TIMESLICE"),
            ("XSCHED_LEVEL", "XSCHED_AUTO_XQUEUE_LEVEL"),
            ("XSCHED_log", "XSCHED_LOG"),
        ] {
            let told = format!("{name} is no variable of xsched: did you mean {meant}?");
            assert_eq!(line(name).as_deref(), Some(&*told), "{name}");
        }
        assert_eq!(line("XSCHED_FLAVOUR_OF_ICE").as_deref(), Some("XSCHED_FLAVOUR_OF_ICE is no variable of xsched"));
        assert_eq!(line("XSCHED_").as_deref(), Some("XSCHED_ is no variable of xsched"));
        for name in ["XSCHED_DISABLE", "XSCHEDULER", "PATH", "SIMDEV_SOCKET"] {
            assert_eq!(line(name), None, "{name}");
        }
        let two = unknown(["XSCHED_B", "XSCHED_A", "XSCHED_B"].map(str::to_owned));
        assert_eq!(two.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["XSCHED_A", "XSCHED_B"]);
    }

    #[test]
    fn flags_and_words_are_checked() {
        let of = |name: &'static str, value: &'static str| faults(move |n| (n == name).then(|| value.to_owned()));
        assert_eq!(of("XSCHED_REQUIRE", "maybe"), ["XSCHED_REQUIRE=maybe: use 1 or 0"]);
        assert_eq!(of("XSCHED_DOMAINS", "1"), ["XSCHED_DOMAINS=1: use off, report, ahead or exempt"]);
        assert_eq!(of("XSCHED_SHARE", "mps"), ["XSCHED_SHARE=mps: use time, pool, spatial or auto"]);
        for (name, value) in
            [("XSCHED_REQUIRE", "no"), ("XSCHED_VERBOSE", "1"), ("XSCHED_SHARE", "Pool"), ("XSCHED_TOLD", "")]
        {
            assert_eq!(of(name, value), [""; 0], "{name}={value}");
        }
    }

    #[test]
    fn every_hint_has_its_variable_here() {
        for hint in Hint::ALL {
            assert!(all().any(|name| name == hint.variable()), "{}", hint.variable());
        }
        assert!(ALL.is_sorted_by(|a, b| a.0 < b.0), "by name, each once");
    }
}
