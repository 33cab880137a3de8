//! `#!` lines.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Number of bytes that the kernel reads.
const LINE_MAX: u64 = 256;

/// Kind of a file, by its first bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An ELF file or some other binary.
    NotAScript,
    /// Programs that are executed for the script, each by the one before; the last one reads the script.
    Interpreters(Vec<OsString>),
}

/// Reads the `#!` line of a file.
pub(super) fn interpreter(file: &Path) -> std::io::Result<Kind> {
    let mut head = Vec::new();
    std::fs::File::open(file)?.take(LINE_MAX).read_to_end(&mut head)?;
    Ok(classify(&head))
}

fn classify(head: &[u8]) -> Kind {
    let Some(rest) = head.strip_prefix(b"#!") else {
        // Shells and execvp give a text without `#!` to /bin/sh.
        let line = head.split(|&b| b == b'\n').next().unwrap_or_default();
        return if line.contains(&0) || head.starts_with(b"\x7fELF") {
            Kind::NotAScript
        } else {
            Kind::Interpreters(vec!["/bin/sh".into()])
        };
    };
    let line = rest.split(|&b| b == b'\n').next().unwrap_or_default().trim_ascii();
    let (program, argument) = match line.iter().position(u8::is_ascii_whitespace) {
        Some(at) => (&line[..at], line[at..].trim_ascii()),
        None => (line, &b""[..]),
    };
    if program.is_empty() {
        return Kind::Interpreters(Vec::new());
    }
    let mut chain = vec![OsString::from_vec(program.to_vec())];
    if Path::new(OsStr::from_bytes(program)).file_name() == Some(OsStr::new("env")) {
        chain.extend(behind_env(argument));
    }
    Kind::Interpreters(chain)
}

/// Program that `env ARGUMENT` starts, if that can be determined.
fn behind_env(argument: &[u8]) -> Option<OsString> {
    let words = match argument.strip_prefix(b"-S") {
        Some(split) => split.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty()).collect(),
        // Without -S, the rest of the line after the first blank is one argument.
        None => vec![argument],
    };
    let word = words.into_iter().find(|w| !w.starts_with(b"-") && !w.contains(&b'='))?;
    (!word.is_empty()).then(|| OsString::from_vec(word.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_lines_are_read_as_the_kernel_and_env_read_them() {
        let of = |text: &str| classify(text.as_bytes());
        let chain = |names: &[&str]| Kind::Interpreters(names.iter().map(OsString::from).collect());
        assert_eq!(of("#!/bin/sh\necho"), chain(&["/bin/sh"]));
        assert_eq!(of("#! /bin/sh -e\necho"), chain(&["/bin/sh"]));
        assert_eq!(of("#!/usr/bin/env python3\n"), chain(&["/usr/bin/env", "python3"]));
        assert_eq!(of("#!/usr/bin/env -S A=1 -i python3 -u\n"), chain(&["/usr/bin/env", "python3"]));
        assert_eq!(of("echo hello\n"), chain(&["/bin/sh"]));
        assert_eq!(of("#!\n"), chain(&[]));
        assert_eq!(of("\x7fELF\x02"), Kind::NotAScript);
        assert_eq!(of("MZ\0\0"), Kind::NotAScript);
    }
}
