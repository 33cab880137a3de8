//! Calls that fail, or do not go on, at the request of a test.
//!
//! `X_FAIL="N CODE HOW"`: the `N`th call returns `CODE` and does nothing else (0 = none fails, calls are only counted).
//! `HOW` is `once`, `on` (all counted calls after it fail too) or `all` (every call after it fails, counted or not, as
//! after a fault of the device). `X_FAIL_SPARED="NAME NAME…"`: functions that are not counted. If these are the
//! functions that a program calls, the counted ones are those that other code in its process calls.
//!
//! `X_FAIL_CALL="NAME:N:CODE NAME:N:CODE…"`: the `N`th call of the function `NAME` returns `CODE`, once, and does nothing
//! else.
//!
//! `X_HOLD="THREAD FOLDER"`: once `FOLDER` has a file `calls` with a number N, the Nth call from then on of a thread of this name writes the
//! name of its function to the file `held`, and goes on once someone opens the FIFO `go` for writing.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Failures of this library itself.
pub(crate) static FAILURES: Failures = Failures::new("FAKECUDA");

/// Requested failures of the calls of one library.
#[derive(Debug)]
pub struct Failures {
    /// Prefix of its variables.
    prefix: &'static str,
    asked: OnceLock<Option<Asked>>,
    named: OnceLock<Vec<Named>>,
    hold: OnceLock<Option<Hold>>,
}

/// Calls of one thread, one of which is held: the thread's name, and the folder with the files that say which.
#[derive(Debug)]
struct Hold {
    thread: String,
    folder: PathBuf,
}

/// A call that fails: the function, number and result, and the number of calls so far.
#[derive(Debug)]
struct Named {
    name: String,
    number: u64,
    code: i32,
    calls: AtomicU64,
}

#[derive(Debug)]
struct Asked {
    first: u64,
    code: i32,
    how: How,
    spared: HashSet<String>,
    counted: AtomicU64,
    /// Name of the function that failed first.
    failed: OnceLock<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Once,
    On,
    All,
}

impl Failures {
    /// Failures of a library with the variables `PREFIX_FAIL`, `PREFIX_FAIL_SPARED` and `PREFIX_FAIL_CALL`.
    pub const fn new(prefix: &'static str) -> Self {
        Self { prefix, asked: OnceLock::new(), named: OnceLock::new(), hold: OnceLock::new() }
    }

    fn asked(&self) -> Option<&Asked> {
        let read = || {
            let name = format!("{}_FAIL", self.prefix);
            let text = std::env::var(&name).ok().filter(|text| !text.is_empty())?;
            let spared = std::env::var(format!("{name}_SPARED")).unwrap_or_default();
            let asked = Asked::parse(&text, &spared);
            if asked.is_none() {
                eprintln!("{name}={text} is not `N CODE once|on|all`");
                std::process::exit(2);
            }
            asked
        };
        self.asked.get_or_init(read).as_ref()
    }

    fn named(&self) -> &[Named] {
        self.named.get_or_init(|| {
            let name = format!("{}_FAIL_CALL", self.prefix);
            let text = std::env::var(&name).unwrap_or_default();
            let calls: Option<Vec<Named>> = text.split_whitespace().map(Named::parse).collect();
            calls.unwrap_or_else(|| {
                eprintln!("{name}={text} is not `NAME:N:CODE`, or several with spaces, N from 1");
                std::process::exit(2);
            })
        })
    }

    /// Has a call of this function wait, if it is to be held.
    pub fn hold(&self, name: &str) {
        let read = || {
            let text = std::env::var(format!("{}_HOLD", self.prefix)).unwrap_or_default();
            let (thread, folder) = text.split_once(' ')?;
            Some(Hold { thread: thread.to_owned(), folder: folder.into() })
        };
        if let Some(hold) = self.hold.get_or_init(read) {
            hold.call(name);
        }
    }

    /// Result that a call of this function must return, if it is to fail.
    pub fn of(&self, name: &str) -> Option<i32> {
        // Every entry counts every call of its function.
        let named = self.named().iter().fold(None, |found, call| call.of(name).or(found));
        let counted = self.asked().and_then(|asked| asked.of(name));
        named.or(counted)
    }

    /// Number of counted calls and the function that failed first; `None` if calls are not counted.
    pub fn told(&self) -> Option<(u64, Option<&str>)> {
        let asked = self.asked()?;
        Some((asked.counted.load(Relaxed), asked.failed.get().map(String::as_str)))
    }
}

/// Name of the calling thread, as the kernel has it: it was made by other code.
fn thread_name() -> Option<String> {
    let name = rustix::thread::name().ok()?;
    name.into_string().ok()
}

impl Hold {
    fn call(&self, name: &str) {
        let left = self.folder.join("calls");
        let Some(number) = std::fs::read_to_string(&left).ok().and_then(|text| text.trim().parse::<u64>().ok()) else {
            return;
        };
        if thread_name().as_deref() != Some(&*self.thread) {
            return;
        }
        if number > 1 {
            return put(&left, &(number - 1).to_string());
        }
        let _ = std::fs::remove_file(&left);
        put(&self.folder.join("held"), name);
        // Opening waits for the other side.
        let _ = std::fs::File::open(self.folder.join("go"));
    }
}

/// Writes a file such that nobody reads a part of it.
fn put(path: &Path, text: &str) {
    let fresh = path.with_extension("new");
    let _ = std::fs::write(&fresh, text).and_then(|()| std::fs::rename(&fresh, path));
}

impl Named {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(':');
        let name = words.next().filter(|name| !name.is_empty())?.to_owned();
        let number = words.next()?.parse().ok().filter(|&number| number > 0)?;
        let code = words.next()?.parse().ok()?;
        words.next().is_none().then_some(Self { name, number, code, calls: AtomicU64::new(0) })
    }

    fn of(&self, name: &str) -> Option<i32> {
        (self.name == name && self.calls.fetch_add(1, Relaxed) + 1 == self.number).then_some(self.code)
    }
}

impl Asked {
    fn parse(text: &str, spared: &str) -> Option<Self> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [first, code, how] = words[..] else { return None };
        let how = match how {
            "once" => How::Once,
            "on" => How::On,
            "all" => How::All,
            _ => return None,
        };
        Some(Self {
            first: first.parse().ok()?,
            code: code.parse().ok()?,
            how,
            spared: spared.split_whitespace().map(str::to_owned).collect(),
            counted: AtomicU64::new(0),
            failed: OnceLock::new(),
        })
    }

    fn of(&self, name: &str) -> Option<i32> {
        if self.spared.contains(name) {
            return (self.how == How::All && self.failed.get().is_some()).then_some(self.code);
        }
        let number = self.counted.fetch_add(1, Relaxed) + 1;
        let fails = self.first != 0 && (number == self.first || (number > self.first && self.how != How::Once));
        if fails {
            self.failed.get_or_init(|| name.to_owned());
        }
        fails.then_some(self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(text: &str) -> [Option<i32>; 6] {
        let asked = Asked::parse(text, "program also").expect("well formed");
        ["own", "program", "own", "other", "also", "own"].map(|name| asked.of(name))
    }

    #[test]
    fn a_named_call_fails_once() {
        let call = Named::parse("cuMemCreate:2:2").expect("well formed");
        let answers = ["cuMemCreate", "cuMemMap", "cuMemCreate", "cuMemCreate"].map(|name| call.of(name));
        assert_eq!(answers, [None, None, Some(2), None]);
        for wrong in ["cuMemCreate", ":1:2", "cuMemCreate:0:2", "cuMemCreate:1:x", "cuMemCreate:1:2:3"] {
            assert!(Named::parse(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn only_counted_calls_fail_and_a_lost_device_fails_all() {
        assert_eq!(answers("0 0 once"), [None; 6]);
        assert_eq!(answers("2 400 once"), [None, None, Some(400), None, None, None]);
        assert_eq!(answers("2 700 on"), [None, None, Some(700), Some(700), None, Some(700)]);
        assert_eq!(answers("2 -5 all"), [None, None, Some(-5), Some(-5), Some(-5), Some(-5)]);
        assert!(Asked::parse("2 700", "").is_none() && Asked::parse("x 1 on", "").is_none());
    }
}
