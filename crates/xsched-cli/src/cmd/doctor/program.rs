//! One running program: is the library in it, what did it find, which queues are there.

use std::fmt::Write;
use std::path::Path;

use serde::Serialize;
use xsched_proto::text::escaped;
use xsched_proto::wire::{DaemonMsg, Described, Request};

use super::{Check, Report, Status, lines, probe, shadow};
use crate::client;

/// What was found.
#[derive(Serialize)]
pub(super) struct Program {
    version: u32,
    pid: u32,
    ok: bool,
    checks: Vec<Check>,
    functions: Vec<Function>,
    queues: Vec<Queue>,
    notes: Vec<String>,
}

/// A hooked function and what it leads to.
#[derive(Serialize)]
struct Function {
    name: String,
    /// Hexadecimal.
    address: String,
    file: String,
    via: String,
}

/// A vendor's queue and the XQueue over it.
#[derive(Serialize)]
struct Queue {
    /// Hexadecimal.
    handle: String,
    slot: u16,
    group: u16,
}

impl Report for Program {
    fn checks(&self) -> &[Check] {
        &self.checks
    }

    fn text(&self) -> String {
        let mut out = lines(&self.checks);
        // Writing to a String cannot fail.
        if !self.functions.is_empty() {
            let _ = writeln!(out, "\n{:<40} {:>18}  {:<8} OWNER", "FUNCTION", "ADDRESS", "FOUND BY");
            for f in &self.functions {
                let _ = writeln!(out, "{:<40} {:>18}  {:<8} {}", f.name, f.address, f.via, f.file);
            }
        }
        if !self.queues.is_empty() {
            let _ = writeln!(out, "\n{:>18}  {:>6} {:>6}", "QUEUE", "XQUEUE", "GROUP");
            for q in &self.queues {
                let _ = writeln!(out, "{:>18}  {:>6} {:>6}", q.handle, q.slot, q.group);
            }
        }
        if !self.notes.is_empty() {
            out.push('\n');
        }
        for note in &self.notes {
            let _ = writeln!(out, "note  {note}");
        }
        out
    }
}

/// Looks from outside, then asks the program itself by way of the daemon.
pub(super) fn examine(pid: u32, socket: Option<&Path>) -> Program {
    let mut program = Program {
        version: 1,
        pid,
        ok: false,
        checks: vec![library(pid)],
        functions: Vec::new(),
        queues: Vec::new(),
        notes: vec![
            "calls of objects opened with RTLD_DEEPBIND or dlmopen pass by any preload library; that cannot be seen \
             from here: compare the launches of `xsched ps` with what the program should have launched"
                .to_owned(),
        ],
    };
    match client::ask(socket, Request::Describe { pid }) {
        Ok(answer) => {
            for part in answer {
                if let DaemonMsg::Description(lines) = part {
                    lines.into_iter().for_each(|line| program.add(line));
                }
            }
            program.checks.push(Check::ok("attached", "the daemon knows the program and it answers"));
        }
        Err(e) => program.checks.push(Check::fail(
            "attached",
            e.line(),
            "a program attaches at its first device call, to the daemon that its XSCHED_SOCKET names",
        )),
    }
    program.ok = program.checks.iter().all(|c| c.status != Status::Fail);
    program
}

impl Program {
    fn add(&mut self, line: Described) {
        let shown = |text: String| escaped(&text).into_owned();
        match line {
            Described::Function { name, address, file, via } => {
                self.functions.push(Function {
                    name: shown(name),
                    address: format!("{address:#x}"),
                    file: shown(file),
                    via: shown(via),
                });
            }
            Described::Queue { handle, slot, group } => {
                self.queues.push(Queue { handle: format!("{handle:#x}"), slot, group });
            }
            Described::Note { text } => self.notes.push(shown(text)),
        }
    }
}

/// Is libxsched.so mapped, and if not, why?
fn library(pid: u32) -> Check {
    let name = "library";
    if !Path::new(&format!("/proc/{pid}")).exists() {
        return Check::fail(name, format!("there is no process {pid}"), "see `xsched ps`");
    }
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let has = |wanted: &[u8]| environment.split(|&b| b == 0).any(|entry| entry == wanted);
    match probe::mapped(pid) {
        Ok(Some(_)) if has(b"XSCHED_DISABLE=1") => {
            Check::fail(name, "loaded, but switched off by XSCHED_DISABLE=1", "start the program without it")
        }
        Ok(Some(path)) => match shadow::of(pid, &environment) {
            None => Check::ok(name, format!("{path} is loaded")),
            Some((before, function)) => Check::fail(
                name,
                format!(
                    "{path} is loaded, but {before} stands before it and answers {function}: what that does not pass on is \
                         not scheduled"
                ),
                "name libxsched.so first in LD_PRELOAD; where another command preloads, put `xsched run` behind it: \
                 `oclgrind xsched run -- ./app`",
            ),
        },
        Ok(None) => Check::fail(
            name,
            "libxsched.so is not loaded in it",
            "start it with `xsched run -- COMMAND`, which says so where the library cannot be loaded",
        ),
        Err(why) => Check::note(name, why.line(), "ask as the program's user or as root"),
    }
}
