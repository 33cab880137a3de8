//! What a file of pass-through rules says. Nothing here knows of hooks, so that a fuzzer can read such files without any.

use xsched_proto::Error;

use super::json::{self, Value};

/// What being named means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    /// It passes; all else is scheduled.
    #[default]
    Whitelist,
    /// It is scheduled; all else passes.
    Blacklist,
}

/// The rules of a file.
#[derive(Debug, Default)]
pub(super) struct RuleFile {
    pub(super) mode: Mode,
    /// In lower case.
    pub(super) libraries: Vec<String>,
    /// Functions, and what the rule says of each; none = what being named means.
    pub(super) apis: Vec<(String, Option<bool>)>,
}

/// What a file says, and what of it was not understood.
pub(super) fn read(text: &str, hooked: &[&str]) -> Result<(RuleFile, Vec<String>), Error> {
    let (mut rules, mut unknown) = (RuleFile::default(), Vec::new());
    if text.trim().is_empty() {
        return Ok((rules, unknown));
    }
    let Value::Map(mut map) = json::read(text)? else {
        return Err(Error::input("line 1: an object { … } is missing"));
    };
    // The table may stand in one of several of a larger file.
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

/// The hooked functions of this name; a `*` at its end stands for anything.
fn apis(pattern: &str, hooked: &[&str]) -> Vec<String> {
    let matches = |name: &str| match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    };
    hooked.iter().filter(|name| matches(name)).map(|name| (*name).to_owned()).collect()
}
