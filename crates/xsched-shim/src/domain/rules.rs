//! Pass-through rules: launches that reach the driver without a decision. See `docs/guide/passthrough.md`.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::*};

use super::rule_file::{self, Mode};
use xsched_proto::{Error, files, variables, writing};

use crate::interpose::{self, BINDINGS};
use crate::lock::Lock;

/// File of the rules unless `XSCHED_PASSTHROUGH_CONFIG` names another.
const FILE: &str = "/etc/xsched/passthrough.json";
/// Largest size accepted, in bytes. A larger file is a mistake.
const MOST_BYTES: u64 = 1 << 20;

#[derive(Debug, Default)]
struct Rules {
    mode: Mode,
    /// Names of libraries, in lower case.
    libraries: Vec<String>,
    apis: Vec<Api>,
}

#[derive(Debug)]
struct Api {
    name: String,
    tag: usize,
    /// The rule's own answer whether calls pass; `None` = decided by the mode.
    passes: Option<bool>,
    said: AtomicBool,
}

static RULES: OnceLock<Rules> = OnceLock::new();
/// Set if some rule names a function.
static BY_FUNCTION: AtomicBool = AtomicBool::new(false);
/// Libraries whose first hit was reported.
static SAID: Lock<Vec<String>> = Lock::new();
static VERBOSE: AtomicBool = AtomicBool::new(false);

/// Decision of the rules on a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    passes: bool,
}

impl Verdict {
    /// Verdict on code that is in no library.
    pub(super) const UNNAMED: Verdict = Verdict { passes: false };

    /// Reports whether launches of the library pass, unless a rule for the function decides otherwise.
    pub(super) fn passes(self) -> bool {
        self.passes
    }
}

/// Reports whether some rule names a function.
pub(super) fn by_name() -> bool {
    BY_FUNCTION.load(Relaxed)
}

/// Reads the rules, once; `hooked` are the functions that rules may name. Returns a line for each entry that was not
/// understood.
pub(super) fn read(hooked: &[&str]) -> Vec<String> {
    let var = variables::text;
    VERBOSE.store(variables::is_on("XSCHED_VERBOSE"), Relaxed);
    let mut complaints = Vec::new();
    let mut rules = Rules::default();
    let given = var("XSCHED_PASSTHROUGH_CONFIG");
    let file = given.as_deref().unwrap_or(FILE);
    match contents(file) {
        Ok(text) => match rules_of(&text, hooked) {
            Ok((read, unknown)) => {
                rules = read;
                complaints.extend(unknown.into_iter().map(|what| format!("{file}: {what}")));
            }
            Err(why) => complaints.push(format!("pass-through rules ignored: {file}: {why}")),
        },
        Err(e) if given.is_none() && e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => complaints.push(format!("pass-through rules ignored: {file}: {e}")),
    }
    if let Some(more) = var("XSCHED_PASSTHROUGH_LIBS") {
        let more = more.split([',', ':']).map(|l| l.trim().to_lowercase()).filter(|l| !l.is_empty());
        rules.libraries.extend(more);
    }
    BY_FUNCTION.store(!rules.apis.is_empty(), Relaxed);
    let _ = RULES.set(rules);
    if any() {
        print("[XSched] Passthrough initialized");
    }
    complaints
}

fn contents(file: &str) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    let file = files::read_only(file.as_ref())?;
    if file.take(MOST_BYTES + 1).read_to_string(&mut text)? as u64 > MOST_BYTES {
        return Err(std::io::Error::other("larger than 1 MiB"));
    }
    Ok(text)
}

/// Rules in the text of a file.
fn rules_of(text: &str, hooked: &[&str]) -> Result<(Rules, Vec<String>), Error> {
    let (read, unknown) = rule_file::read(text, hooked)?;
    let api = |(name, passes): (String, Option<bool>)| {
        let tag = interpose::tag(&name);
        Api { name, tag, passes, said: AtomicBool::new(false) }
    };
    let apis = read.apis.into_iter().map(api).collect();
    Ok((Rules { mode: read.mode, libraries: read.libraries, apis }, unknown))
}

/// Reports whether the rules can let any launch pass.
pub(super) fn any() -> bool {
    RULES.get().is_some_and(|r| !r.libraries.is_empty() || !r.apis.is_empty() || r.mode == Mode::Blacklist)
}

/// Reports whether a rule names a library, by a part of its file name or SONAME or, with a slash, of its path.
pub(super) fn names_library(file: &str, soname: Option<&str>) -> bool {
    let Some(rules) = RULES.get() else { return false };
    let (path, soname) = (file.to_lowercase(), soname.map(str::to_lowercase));
    let name = path.rsplit('/').next().unwrap_or(&path);
    let is = |rule: &String| match rule.contains('/') {
        true => path.contains(rule),
        false => name.contains(rule) || soname.as_ref().is_some_and(|s| s.contains(rule)),
    };
    rules.libraries.iter().any(is)
}

/// Decides on a library, given whether a rule names it.
pub(super) fn of_library(file: &str, named: bool) -> Verdict {
    let blacklist = RULES.get().is_some_and(|r| r.mode == Mode::Blacklist);
    Verdict { passes: !file.is_empty() && named != blacklist }
}

/// Reports whether a call passes: from a library with this verdict, to the function whose tag is in the stub's word
/// `binding`. A rule for the function takes precedence over the library's.
#[inline(always)]
pub(super) fn passes(verdict: Verdict, binding: usize) -> bool {
    if BY_FUNCTION.load(Relaxed) { by_function(verdict, binding) } else { verdict.passes }
}

#[inline(never)]
fn by_function(verdict: Verdict, binding: usize) -> bool {
    let Some(rules) = RULES.get() else { return verdict.passes };
    let tag = binding & !(BINDINGS - 1);
    let Some(api) = rules.apis.iter().find(|api| api.tag == tag) else { return verdict.passes };
    let passes = api.passes.unwrap_or(rules.mode == Mode::Whitelist);
    if passes && !api.said.load(Relaxed) && !api.said.swap(true, Relaxed) {
        say(&api.name);
    }
    passes
}

/// Reports the first launch of a library that passed. Called when one passed for the first time on some thread.
pub(super) fn say_hit(file: &str, verdict: Verdict) {
    if !verdict.passes {
        return;
    }
    let mut said = SAID.lock();
    if !said.iter().any(|s| s == file) {
        said.push(file.to_owned());
        say(file);
    }
}

/// Abandons the list of reported libraries, in a forked child.
pub(super) fn forget_all() {
    SAID.forget();
}

/// Prints a hit if `XSCHED_VERBOSE=1`, in the words that scripts look for.
fn say(what: &str) {
    print(&format!("[XSched] Passthrough: {what}"));
}

fn print(what: &str) {
    if VERBOSE.load(Relaxed) {
        let line = format!("{what}\n");
        // SAFETY: descriptor 2 is only written to; a closed one makes the write fail, which is ignored.
        writing::without_signals(|| unsafe { libc::write(2, line.as_ptr().cast(), line.len()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOOKED: &[&str] = &["simMemcpyAsync", "simMemset", "simMemsetAsync", "simLaunch"];

    #[test]
    fn a_file_of_passthrough_rules_is_read_and_its_mistakes_are_told() {
        let text = r#"{
            // what does not go through the scheduler
            "passthrough": {
                "mode": "Whitelist",
                "libraries": ["hipblas", "MIOpen", ],
                "user_libraries": ["/triton/"],   // by path
                "apis": ["simMemcpyAsync", "simMemset*", "nonesuch"],
                "colour": 1
            }
        }"#;
        let (rules, unknown) = rules_of(text, HOOKED).unwrap();
        assert_eq!(rules.libraries, ["hipblas", "miopen", "/triton/"]);
        let names: Vec<_> = rules.apis.iter().map(|a| a.name.as_str()).collect();
        assert_eq!(names, ["simMemcpyAsync", "simMemset", "simMemsetAsync"]);
        assert_eq!(unknown.len(), 2, "{unknown:?}");
        let text = r#"{
            "passthrough_mode": "whitelist",  // whitelist | blacklist
            "libraries": ["libhipblas.so", "libMIOpen.so", "librocblas.so"],
            "apis": {"simMemset": "passthrough", "simLaunch": "Schedule", "nonesuch": "schedule"}
        }"#;
        let (rules, unknown) = rules_of(text, HOOKED).unwrap();
        let said: Vec<_> = rules.apis.iter().map(|a| (a.name.as_str(), a.passes)).collect();
        assert_eq!(said, [("simMemset", Some(true)), ("simLaunch", Some(false))]);
        assert_eq!((rules.libraries.len(), unknown.len()), (3, 0));
        assert_eq!(rules_of("{\"mode\": \"blacklist\"}", HOOKED).unwrap().0.mode, Mode::Blacklist);
        assert!(rules_of("", HOOKED).unwrap().0.libraries.is_empty());
        for (text, says) in [
            ("{\"mode\": 1}", "wrong kind"),
            ("{\"apis\": {\"simLaunch\": \"hold\"}}", "use passthrough or schedule"),
            ("{\"mode\": \"grey\"}", "use whitelist or blacklist"),
            ("{\"libraries\": [1]}", "no text"),
            ("[]", "an object"),
        ] {
            let e = rules_of(text, HOOKED).unwrap_err();
            assert!(e.line().contains(says), "{text}: {e}");
        }
    }
}
