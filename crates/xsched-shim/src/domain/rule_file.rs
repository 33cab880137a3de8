//! Parser of a file of pass-through rules. It is independent of hooks, so that a fuzzer can run it alone.

use xsched_proto::Error;

use super::json::{self, Value};

/// Effect of a rule that names a library or function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    /// Named calls pass; all others are scheduled.
    #[default]
    Whitelist,
    /// Named calls are scheduled; all others pass.
    Blacklist,
}

/// The rules of a file.
#[derive(Debug, Default)]
pub(super) struct RuleFile {
    pub(super) mode: Mode,
    /// Names of libraries, in lower case.
    pub(super) libraries: Vec<String>,
    /// Functions, each with the answer of its rule whether it passes; `None` = by [`Mode`].
    pub(super) apis: Vec<(String, Option<bool>)>,
}

/// Parses a file. Returns its rules, and a line for each entry that was not understood.
pub(super) fn read(text: &str, hooked: &[&str]) -> Result<(RuleFile, Vec<String>), Error> {
    let (mut rules, mut unknown) = (RuleFile::default(), Vec::new());
    if text.trim().is_empty() {
        return Ok((rules, unknown));
    }
    let Value::Map(mut map) = json::read(text)? else {
        return Err(Error::input("line 1: an object { … } is missing"));
    };
    // The table may be one of several in a larger file.
    if let Some(at) = map.iter().position(|(name, value)| name == "passthrough" && matches!(value, Value::Map(_)))
        && let Value::Map(inner) = map.swap_remove(at).1
    {
        map = inner;
    }
    for (name, value) in map {
        match (name.as_str(), value) {
            ("mode" | "passthrough_mode", Value::Text(mode)) => {
                rules.mode = match mode.to_ascii_lowercase().as_str() {
                    "whitelist" => Mode::Whitelist,
                    "blacklist" => Mode::Blacklist,
                    other => return Err(Error::input(format!("mode '{other}': use whitelist or blacklist"))),
                }
            }
            ("libraries" | "libs" | "user_libraries", Value::List(list)) => {
                rules.libraries.extend(texts(&name, list)?.into_iter().map(|l| l.to_lowercase()));
            }
            ("apis", Value::List(list)) => {
                for pattern in texts(&name, list)? {
                    let found = apis(&pattern, hooked);
                    if found.is_empty() {
                        unknown.push(format!("'{pattern}' is no function that is scheduled, ignored"));
                    }
                    rules.apis.extend(found.into_iter().map(|api| (api, None)));
                }
            }
            ("apis", Value::Map(map)) => {
                for (pattern, says) in map {
                    let passes = match says {
                        Value::Text(word) if word.eq_ignore_ascii_case("passthrough") => true,
                        Value::Text(word) if word.eq_ignore_ascii_case("schedule") => false,
                        _ => return Err(Error::input(format!("\"apis\", \"{pattern}\": use passthrough or schedule"))),
                    };
                    let found = apis(&pattern, hooked);
                    if found.is_empty() && passes {
                        unknown.push(format!("'{pattern}' is no function that is scheduled, ignored"));
                    }
                    rules.apis.extend(found.into_iter().map(|api| (api, Some(passes))));
                }
            }
            (name @ ("mode" | "passthrough_mode" | "libraries" | "libs" | "user_libraries" | "apis"), _) => {
                return Err(Error::input(format!("\"{name}\" has a value of the wrong kind")));
            }
            (name, _) => unknown.push(format!("\"{name}\" ignored: use mode, libraries, user_libraries or apis")),
        }
    }
    Ok((rules, unknown))
}

fn texts(name: &str, list: Vec<Value>) -> Result<Vec<String>, Error> {
    let text = |value| match value {
        Value::Text(text) if !text.is_empty() => Ok(text),
        _ => Err(Error::input(format!("\"{name}\" holds something that is no text"))),
    };
    list.into_iter().map(text).collect()
}

/// Hooked functions of this name; a `*` at its end matches any ending.
fn apis(pattern: &str, hooked: &[&str]) -> Vec<String> {
    let matches = |name: &str| match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    };
    hooked.iter().filter(|name| matches(name)).map(|name| (*name).to_owned()).collect()
}
