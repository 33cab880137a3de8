//! Names of programs: for an interpreter, the name of the script that it runs.

use std::io::Read;

/// Largest part of a command line that is kept, in bytes, blanks included.
pub const COMMAND_MAX_BYTES: usize = 1024;

/// Names of interpreters, without a version that may follow.
const INTERPRETERS: [&str; 14] =
    ["python", "pypy", "bash", "sh", "dash", "zsh", "ksh", "perl", "ruby", "node", "julia", "Rscript", "lua", "php"];

/// Command line of this process, cut to [`COMMAND_MAX_BYTES`]; empty where it cannot be read.
pub fn own_command() -> Vec<String> {
    let mut bytes = Vec::new();
    if let Ok(file) = std::fs::File::open("/proc/self/cmdline") {
        // The words read before an error are as good as any.
        let _ = file.take(2 * COMMAND_MAX_BYTES as u64).read_to_end(&mut bytes);
    }
    let words = bytes.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
    let mut words: Vec<String> = words.collect();
    if words.last().is_some_and(String::is_empty) {
        words.pop();
    }
    cut(words)
}

/// Title of this process, where it differs from the command line of the start.
pub fn own_title(started: &[String]) -> Option<String> {
    let now = own_command();
    // A title is one string, padded with blanks or zeros up to the end of the memory that it was written over.
    let now = now.join(" ");
    let now = now.trim_end();
    (!now.is_empty() && now != started.join(" ").trim_end()).then(|| now.to_owned())
}

/// Cuts a command line to its first words, [`COMMAND_MAX_BYTES`] at most; the last word may be cut.
pub fn cut(words: Vec<String>) -> Vec<String> {
    let mut room = COMMAND_MAX_BYTES;
    let fits = |mut word: String| {
        let end = (0..=word.len().min(room)).rev().find(|at| word.is_char_boundary(*at)).unwrap_or(0);
        let is_all = end == word.len();
        word.truncate(end);
        // The cut part must not keep its memory either.
        word.shrink_to_fit();
        room = if is_all { room.saturating_sub(end + 1) } else { 0 };
        (is_all || end > 0).then_some(word)
    };
    words.into_iter().map_while(fits).collect()
}

/// File name of a path.
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Script or module that a command line has an interpreter run: `train.py` of `python3 -u /home/a/train.py --epochs 3`,
/// `torch.distributed.run` of `python -m torch.distributed.run`. None for anything else.
pub fn script(command: &[String]) -> Option<&str> {
    let (program, rest) = command.split_first()?;
    let name = file_name(program).trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    if !INTERPRETERS.contains(&name) {
        return None;
    }
    let (is_python, is_shell) = (name == "python" || name == "pypy", name.ends_with("sh"));
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-m" if is_python => return words.next().map(String::as_str),
            "-W" | "-X" | "--check-hash-based-pycs" if is_python => drop(words.next()),
            // The next word is the program's own text, not a file.
            "-c" => return None,
            "-e" if !is_shell => return None,
            // For example `bash -eo pipefail`: the option takes a word.
            word if is_shell && word.starts_with('-') && word.ends_with('o') => drop(words.next()),
            "--" => return words.next().map(|word| file_name(word)),
            word if word.starts_with('-') => (),
            word => return Some(file_name(word)).filter(|name| !name.is_empty()),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_script_is_what_an_interpreter_runs() {
        for (line, name) in [
            ("python3 train.py --epochs 3", Some("train.py")),
            ("/usr/bin/python3.11 -u -W ignore /home/a/train.py", Some("train.py")),
            ("python -m torch.distributed.run a.py", Some("torch.distributed.run")),
            ("bash -e ./job.sh", Some("job.sh")),
            ("bash -eo pipefail job.sh", Some("job.sh")),
            ("perl -e print(1)", None),
            ("python3 -c import(x)", None),
            ("python3", None),
            ("./serve model.bin", None),
            ("node -- app.js", Some("app.js")),
        ] {
            assert_eq!(script(&words(line)), name, "{line}");
        }
        assert_eq!(script(&[]), None);
    }

    #[test]
    fn a_long_command_is_cut_between_characters() {
        let long = cut(vec!["a".repeat(1000), "é".repeat(40), "b".into()]);
        assert_eq!((long.len(), long[1].chars().count()), (2, 11));
        assert!(long.iter().map(|word| word.len() + 1).sum::<usize>() <= COMMAND_MAX_BYTES + 1);
        assert!(cut(vec!["a".repeat(COMMAND_MAX_BYTES), "b".into()]).len() == 1);
        let own = own_command();
        assert!(!own.is_empty());
        assert_eq!(own_title(&own), None);
        assert_eq!(own_title(&["another".to_owned()]), Some(own.join(" ").trim_end().to_owned()));
    }
}
