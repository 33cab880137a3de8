//! A fault of a scenario's text in one line: where, what, and what was probably meant.

use xsched_proto::Error;
use xsched_proto::similar::nearest;

/// The line about a fault that the reader of TOML has found.
pub(super) fn line_of(text: &str, fault: &toml::de::Error) -> Error {
    let at = fault.span().map_or(0, |span| span.start.min(text.len()));
    let line = text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
    let message = fault.message().split('\n').next().unwrap_or_default();
    Error::input(format!("line {line}: {}", meant(message)))
}

/// Puts what was probably meant in place of all that is accepted.
fn meant(message: &str) -> String {
    let quoted = |text: &str| -> Vec<String> { text.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
    for (what, name) in [("unknown field ", "key"), ("unknown variant ", "value")] {
        let Some((given, expected)) = message.strip_prefix(what).and_then(|rest| rest.split_once(", ")) else {
            continue;
        };
        let (given, known) = (given.trim_matches('`'), quoted(expected));
        return match nearest(given, known.iter().map(String::as_str)) {
            Some(meant) => format!("unknown {name} `{given}`: did you mean `{meant}`?"),
            None => format!("unknown {name} `{given}`: use {}", known.join(", ")),
        };
    }
    match message.strip_prefix("missing field ") {
        Some(field) => format!("{field} is missing"),
        None => message.to_owned(),
    }
}
