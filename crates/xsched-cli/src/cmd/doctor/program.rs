//! Checks of one running program: whether it is scheduled, and if not, the reason; its functions, and its queues.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use xsched_proto::class::PRIORITY_NEVER;
use xsched_proto::paths;
use xsched_proto::settings::{Mode, Settings};
use xsched_proto::text::escaped;
use xsched_proto::wire::{DaemonMsg, Described, GroupState, ProgramInfo, Request};

use super::process::{self, Mapping};
use super::report::{Cause, Check, Report, Status};
use super::{calls, probe, shadow};
use crate::client;
use crate::cmd::ps;
use crate::target::{self, Verdict};

/// Names of the vendors' libraries, without the version behind `.so`.
const VENDORS: [&str; 5] = ["libcuda.so", "libamdhip64.so", "libhsa-runtime64.so", "libOpenCL.so", "libsimdev.so"];

/// Hooked function, and the function that it leads to.
#[derive(Debug, Serialize)]
pub(super) struct Function {
    pub(super) name: String,
    /// Address, in hexadecimal.
    pub(super) address: String,
    pub(super) file: String,
    pub(super) via: String,
}

/// Queue of the vendor, and the XQueue over it.
#[derive(Debug, Serialize)]
pub(super) struct Queue {
    /// Handle, in hexadecimal.
    pub(super) handle: String,
    pub(super) slot: u16,
    pub(super) group: u16,
}

/// Examines a program from outside, then asks the program itself by way of the daemon.
pub(super) fn examine(pid: u32, socket: Option<&Path>) -> Report {
    let mut checks = Vec::new();
    let is_gone = match process::state(pid) {
        None => Some(format!("there is no process {pid}")),
        Some('Z' | 'X') => Some(format!("process {pid} has ended; only its parent has not noticed yet")),
        Some(_) if process::command(pid).is_empty() => Some(format!("process {pid} is a thread of the kernel")),
        Some(_) => None,
    };
    if let Some(found) = is_gone {
        checks.push(Check::fail("process", Cause::NoProcess, found, "see `xsched ps --all`"));
        return Report::new(Some(pid), checks);
    }
    let (functions, queues, notes) = Default::default();
    let mut report = Report { functions, queues, notes, ..Report::new(Some(pid), checks) };
    report.add_checks(pid, socket);
    report.conclude();
    report
}

impl Report {
    fn add_checks(&mut self, pid: u32, socket: Option<&Path>) {
        if let Some('T' | 't') = process::state(pid) {
            let advice = format!("`kill -CONT {pid}` lets it go on");
            self.checks.push(Check::note(
                "process",
                Cause::Stopped,
                "it is stopped, by a signal or a debugger",
                advice,
            ));
        }
        let environment = process::environment(pid);
        let var = |name: &str| process::value(environment.as_deref()?, name);
        let in_its_way = executable(pid).or_else(|| switched_off(&var));
        let can_be = in_its_way.is_none();
        self.checks.extend(in_its_way);
        let mappings = match process::mappings(pid) {
            Ok(mappings) => Some(mappings),
            Err(why) => {
                let found = format!("it cannot be looked into: {why}");
                self.checks.push(Check::note(
                    "library",
                    Cause::NotReadable,
                    found,
                    "ask as the program's user or as root",
                ));
                None
            }
        };
        if let Some(mappings) = &mappings
            && can_be
        {
            let preload = var("LD_PRELOAD").unwrap_or_default();
            let library = library(pid, mappings, &preload);
            let is_in = library.status == Status::Ok;
            self.checks.push(library);
            if is_in {
                self.checks.extend(passed_by(pid));
            }
        }
        let elsewhere = if environment.is_some() { other_daemon(pid, socket, &var) } else { None };
        let is_told = self.checks.iter().any(|check| check.status == Status::Fail) || elsewhere.is_some();
        self.checks.extend(elsewhere);
        match client::ask(socket, Request::Describe { pid }) {
            Ok(answer) => {
                for part in answer {
                    if let DaemonMsg::Description(lines) = part {
                        lines.into_iter().for_each(|line| self.add_line(line));
                    }
                }
                self.checks.push(Check::ok("attached", "the daemon knows the program and it answers"));
                if let Some(program) = program(pid, socket) {
                    self.checks.push(held(&program));
                    self.checks.extend(memory(&program));
                }
                self.notes.push(
                    "a call by an address that dlsym gave to an object opened with RTLD_DEEPBIND cannot be seen: compare the \
                     launches of `xsched ps` with what the program should have launched"
                        .to_owned(),
                );
            }
            // An earlier check gives the reason.
            Err(_) if is_told => {}
            Err(e) => {
                let check = refused(pid, socket).unwrap_or_else(|| not_attached(mappings.as_deref(), e.line()));
                self.checks.push(check);
            }
        }
    }

    fn add_line(&mut self, line: Described) {
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

/// Checks whether the executable keeps any preload library out.
fn executable(pid: u32) -> Option<Check> {
    let name = "executable";
    let link = PathBuf::from(format!("/proc/{pid}/exe"));
    let shown =
        std::fs::read_link(&link).map_or_else(|_| link.display().to_string(), |path| path.display().to_string());
    if process::is_secure(pid) == Some(true) {
        let found = format!(
            "{shown} runs with more rights than its user (setuid, setgid or file capabilities): the loader ignores LD_PRELOAD"
        );
        return Some(Check::fail(
            name,
            Cause::Secure,
            found,
            "start it without these rights, or go without a scheduler",
        ));
    }
    let why = match target::inspect(&link) {
        Ok(Verdict::Cannot { why, .. }) if !why.starts_with("not readable") => why,
        Ok(Verdict::HandsOn) => "linked statically".to_owned(),
        _ => return None,
    };
    let advice = "use a build that is linked dynamically to glibc 2.28 or newer, or go without a scheduler";
    Some(Check::fail(name, Cause::NotPreloadable, format!("{shown} is {why}"), advice))
}

/// Checks whether the program's variables switch xsched off.
fn switched_off(var: &impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<Check> {
    let name = "environment";
    let text = |name: &str| var(name)?.into_string().ok();
    // Read as the library does: an unclear value switches off, too.
    let is_disabled = text("XSCHED_DISABLE").filter(|value| xsched_proto::variables::flag(value) != Some(false));
    if let Some(value) = is_disabled {
        let found = format!("it was started with XSCHED_DISABLE={value}, which switches xsched off in it");
        return Some(Check::fail(name, Cause::SwitchedOff, found, "start it without that variable"));
    }
    let settings = Settings::read(text, std::iter::empty());
    match settings.mode {
        Mode::Unscheduled => Some(Check::fail(
            name,
            Cause::NoScheduler,
            "it was started with `run --no-daemon`, XSCHED_NO_DAEMON=1 or XSCHED_SCHEDULER=APP, and so asks no daemon",
            "start it without",
        )),
        Mode::Local(policy) => Some(Check::fail(
            name,
            Cause::NoScheduler,
            format!(
                "it schedules only inside itself, by the policy {policy} (`run --local`, XSCHED_POLICY, XSCHED_SCHEDULER=LCL)"
            ),
            "start it without, to have it scheduled with other programs",
        )),
        Mode::Daemon(_) if !settings.auto_xqueue => Some(Check::fail(
            name,
            Cause::NoScheduler,
            "it was started with XSCHED_AUTO_XQUEUE=OFF: only XQueues that it makes itself are scheduled",
            "start it without",
        )),
        Mode::Daemon(_) => None,
    }
}

/// Checks that libxsched.so is in the program, and before other libraries that answer the same calls.
fn library(pid: u32, mappings: &[Mapping], preload: &OsStr) -> Check {
    let name = "library";
    if let Some(path) = probe::mapped_in(mappings) {
        return match shadow::of(pid, preload) {
            None => Check::ok(name, format!("{} is loaded", path.display())),
            Some((before, function)) => Check::fail(
                name,
                Cause::Shadowed,
                format!(
                    "{} is loaded, but {before} stands before it and answers {function}: what that does not pass on is not \
                     scheduled",
                    path.display()
                ),
                "name libxsched.so first in LD_PRELOAD; where another command preloads, put `xsched run` behind it: \
                 `oclgrind xsched run -- ./app`",
            ),
        };
    }
    let named = shadow::preloads(preload).into_iter().find(|file| shadow::is_ours(file));
    match named {
        None => Check::fail(
            name,
            Cause::NotPreloaded,
            "libxsched.so is not loaded in it: it was started without, or by something that clears LD_PRELOAD",
            "start it with `xsched run -- COMMAND`; under sudo or a wrapper that clears variables put `xsched run` behind: \
             `sudo xsched run -- COMMAND`",
        ),
        Some(file) if !process::path_in(pid, file).exists() => {
            let whose = if process::has_own_files(pid) {
                "which sees other files than this shell (a container?)"
            } else {
                "which"
            };
            let found =
                format!("LD_PRELOAD names {}, but there is no such file for the program, {whose}", file.display());
            let found = found.trim_end_matches(", which").to_owned();
            Check::fail(
                name,
                Cause::FileMissing,
                found,
                "mount the folder of libxsched.so into the container, at the same path",
            )
        }
        Some(file) => Check::fail(
            name,
            Cause::NotLoaded,
            format!("LD_PRELOAD names {}, but the loader did not take it", file.display()),
            "take a libxsched.so that was made for this machine; the loader says on stderr why it refuses a library",
        ),
    }
}

/// Checks for modules whose calls do not reach the library.
fn passed_by(pid: u32) -> Option<Check> {
    let name = "calls";
    match calls::of(pid) {
        Ok(calls) => match calls.past.first() {
            Some(past) => Some(Check::fail(
                name,
                Cause::PassedBy,
                format!(
                    "{} of {} goes straight to {}: the module was opened with RTLD_DEEPBIND or dlmopen, which pass by any preload",
                    past.function,
                    past.module.display(),
                    past.owner.display()
                ),
                "have the module opened without; what it launches is not scheduled and not counted",
            )),
            None if calls.through > 0 => Some(Check::ok(name, "of its modules come to the library")),
            None => None,
        },
        // For example under Yama, which lets only parents and root read memory.
        Err(_) => None,
    }
}

/// Checks whether the program asks another daemon than the one that is asked here, or none.
fn other_daemon(pid: u32, socket: Option<&Path>, var: &impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<Check> {
    let name = "daemon";
    let root = process::path_in(pid, Path::new("/"));
    let uid = std::fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    let theirs = paths::socket_path_of(&root, uid, |name| var(name).map(PathBuf::from));
    let (ours, _) = paths::socket_path(socket.map(Path::to_owned));
    let inode = |path: &Path| std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    let seen = process::path_in(pid, &theirs);
    match inode(&seen) {
        Some(there) if Some(there) == inode(&ours) => None,
        Some(_) => {
            let found = format!("it looks for its daemon at {}, not at {}", theirs.display(), ours.display());
            let advice = format!(
                "`xsched ps --socket {}` asks that one; for all to share one, run a system daemon",
                seen.display()
            );
            Some(Check::fail(name, Cause::OtherDaemon, found, advice))
        }
        None => {
            let mut found = format!("it looks for its daemon at {}, and there is none", theirs.display());
            let mut advice = "start it with `xsched run`, which starts a daemon";
            if process::has_own_files(pid) {
                found += " among the files that it sees (a container?)";
                advice = "mount the folder of the daemon's socket into the container, at the same path";
            }
            Some(Check::fail(name, Cause::NoDaemon, found, advice))
        }
    }
}

/// Check result for a program that the daemon refuses; none = it does not.
fn refused(pid: u32, socket: Option<&Path>) -> Option<Check> {
    let answer = client::ask(socket, Request::Ps).ok()?;
    let refused = answer.into_iter().find_map(|part| match part {
        DaemonMsg::RefusedProgram(refused) if refused.pid == pid => Some(refused),
        _ => None,
    })?;
    let found = format!("the daemon refuses it: {}", refused.why);
    let advice =
        "end other programs of this user, or raise the limit in [limits] of the configuration; it asks again by itself";
    Some(Check::fail("attached", Cause::Refused, found, advice))
}

/// Check result for a program that the daemon does not know though nothing prevents it.
fn not_attached(mappings: Option<&[Mapping]>, why: &str) -> Check {
    let name = "attached";
    let files = mappings.unwrap_or_default().iter().filter_map(|m| m.file.as_deref()?.file_name()?.to_str());
    let vendor = files.into_iter().find(|file| VENDORS.iter().any(|vendor| file.starts_with(vendor)));
    let found = match (mappings, vendor) {
        (None, _) => why.to_owned(),
        (_, None) => format!("it has loaded no vendor's library, and so has used no device yet ({why})"),
        (_, Some(file)) => {
            format!("it has loaded {file}, but has given no command to a device through libxsched.so ({why})")
        }
    };
    Check::fail(
        name,
        Cause::NoCall,
        found,
        "a program attaches at its first device call: wait for that; if it has been made, another library took it",
    )
}

/// The program as the daemon reports it.
fn program(pid: u32, socket: Option<&Path>) -> Option<Box<ProgramInfo>> {
    let answer = client::ask(socket, Request::Ps).ok()?;
    answer.into_iter().find_map(|part| match part {
        DaemonMsg::Program(program) if program.pid == pid => Some(program),
        _ => None,
    })
}

/// Check result for the memory that an attached program holds; none where it is not counted.
fn memory(program: &ProgramInfo) -> Option<Check> {
    let lines: Vec<String> = ps::memory_of(program).map(|(device, text)| format!("{text} on {device}")).collect();
    let refused: u64 = program.memory.iter().map(|memory| memory.held.refused).sum();
    let found = escaped(&lines.join("; ")).into_owned();
    match (lines.is_empty(), refused) {
        (true, _) => None,
        (false, 0) => Some(Check::ok("memory", format!("it holds {found}"))),
        (false, _) => {
            let advice = format!("`xsched ps {}` and `docs/guide/limits.md`", program.pid);
            Some(Check::note("memory", Cause::MemoryRefused, format!("it holds {found}"), advice))
        }
    }
}

/// Checks an attached program for reasons that keep it from running, and for launches that were not scheduled.
fn held(program: &ProgramInfo) -> Check {
    let (name, pid) = ("scheduled", program.pid);
    let is = |state| program.groups.iter().any(|group| group.state == state);
    if program.priority == PRIORITY_NEVER {
        let advice = format!("`xsched hint {pid} --priority low` lets it run");
        return Check::note(name, Cause::Held, "its priority is -256: it never runs", advice);
    }
    if is(GroupState::Suspended) {
        return Check::note(name, Cause::Held, "it is suspended", format!("`xsched resume {pid}` lets it go on"));
    }
    if is(GroupState::Detached) {
        let found = "it has opened its own gate: it runs whatever the daemon says";
        return Check::note(name, Cause::Unscheduled, found, "restart it; report it if it was not the program's wish");
    }
    unscheduled(program).unwrap_or_else(|| Check::ok(name, "every launch that came to the library was scheduled"))
}

/// Check result for launches without a decision of the daemon.
fn unscheduled(program: &ProgramInfo) -> Option<Check> {
    let sum = |of: fn(&xsched_proto::wire::Unscheduled) -> u64| {
        program.groups.iter().map(|g| of(&g.unscheduled)).sum::<u64>()
    };
    let (attach, rules, errors) = (sum(|u| u.attach), sum(|u| u.passthrough), sum(|u| u.error));
    let launches: u64 = program.groups.iter().map(|group| group.launches).sum();
    if attach + rules + errors == 0 {
        return None;
    }
    let found = format!(
        "{} of {launches} launches were not scheduled: {attach} before the daemon had answered, {rules} by pass-through rules, {errors} for errors",
        attach + rules + errors
    );
    let advice = "a few at the start are usual; a growing number: see `docs/guide/troubleshooting.md`";
    Some(Check::note("scheduled", Cause::Unscheduled, found, advice))
}
