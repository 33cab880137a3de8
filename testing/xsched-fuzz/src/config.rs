//! Fuzz target for the configuration: two files, the second of which overrides the first.

use crate::scratch;

/// Values for mutations by words; the seeds contain the keys.
pub(crate) const WORDS: &[&str] = &[
    "hpf",
    "up",
    "cfs",
    "fair",
    "mlfq",
    "kedf",
    "chaos",
    "low",
    "normal",
    "high",
    "system",
    "off",
    "report",
    "ahead",
    "true",
    "false",
    "0",
    "-1",
    "1.5",
    "9223372036854775807",
    "18446744073709551616",
    "[",
    "]",
    "[[rule]]",
    "[limits.users.7]",
    "{}",
    "\"\"",
    "\"*\"",
    "=",
    "\n",
    "\0",
    "#",
];

pub(crate) fn run(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == 0);
    let (first, second) = end.map_or((data, &[][..]), |end| (&data[..end], &data[end + 1..]));
    let files = [scratch::place("first.toml"), scratch::place("second.toml")];
    scratch::write(&files[0], first);
    scratch::write(&files[1], second);
    let said = match xsched_daemon::check_config(&files) {
        Ok(notices) => notices,
        Err(why) => vec![why.to_string()],
    };
    for line in &said {
        assert!(!line.chars().any(char::is_control), "not one clear line: {line:?}");
    }
    crate::planted::planted(|| said.is_empty() && first.contains(&b'=') && second.contains(&b'='));
}
