//! Completions that a shell offers for a word that is being typed.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::OnceLock;

use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use xsched_proto::class::Class;
use xsched_proto::text::escaped;
use xsched_proto::wire::{DaemonMsg, ProgramInfo, Request};

use crate::failure::Error;
use crate::{client, users};

/// Variable by which a completion script asks for candidates.
pub(crate) const VARIABLE: &str = "XSCHED_COMPLETE";

/// Description of the command line that is completed.
static COMMAND: OnceLock<fn() -> clap::Command> = OnceLock::new();

/// Shells whose scripts are answered.
const SHELLS: [&str; 5] = ["bash", "elvish", "fish", "powershell", "zsh"];

/// Answers a completion script, and does not return in that case.
///
/// # Errors
/// Bad input where the variable names no shell: it was set for something else.
pub(crate) fn answer(command: fn() -> clap::Command) -> Result<(), Error> {
    if let Some(shell) = std::env::var_os(VARIABLE).filter(|shell| !shell.is_empty() && shell != "0") {
        let shell = shell.to_string_lossy();
        if !SHELLS.contains(&&*shell) {
            let known = SHELLS.join(", ");
            return Err(Error::input(format!("{VARIABLE}: '{shell}' is no shell: use one of {known}, or unset it")));
        }
    }
    let _ = COMMAND.set(command);
    clap_complete::CompleteEnv::with_factory(command).var(VARIABLE).complete();
    Ok(())
}

/// Classes, for options that also take numbers.
pub(crate) fn classes() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let about = |class: Class| match class {
            Class::System => "the operator's own",
            Class::Realtime => "before all of high",
            Class::High => "runs first whenever it wants the device",
            Class::Normal => "the default",
            Class::Low => "takes what is left",
        };
        let candidate = |class: Class| CompletionCandidate::new(class.name()).help(Some(about(class).into()));
        Class::ALL.into_iter().rev().map(candidate).collect()
    })
}

/// Commands, for `xsched help`.
pub(crate) fn commands() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let Some(command) = COMMAND.get().map(|command| command()) else { return Vec::new() };
        let visible = command.get_subcommands().filter(|sub| !sub.is_hide_set());
        visible.map(|sub| CompletionCandidate::new(sub.get_name()).help(sub.get_about().cloned())).collect()
    })
}

/// Attached processes, with the names of their programs.
pub(crate) fn pids() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let help = |program: &ProgramInfo| format!("{} ({})", escaped(&program.name), program.class);
        let candidate = |p: ProgramInfo| CompletionCandidate::new(p.pid.to_string()).help(Some(help(&p).into()));
        programs().into_iter().map(candidate).collect()
    })
}

/// Jobs of attached programs.
pub(crate) fn jobs() -> ArgValueCandidates {
    of_programs(|program| program.job.into_iter().collect())
}

/// Users of attached programs.
pub(crate) fn users() -> ArgValueCandidates {
    of_programs(|program| vec![users::Names::default().of(program.uid).to_owned()])
}

/// Devices in use.
pub(crate) fn devices() -> ArgValueCandidates {
    of_programs(|program| program.groups.into_iter().map(|group| group.device).collect())
}

/// XQueues of attached programs.
pub(crate) fn queues() -> ArgValueCandidates {
    of_programs(|program| {
        let queues = program.groups.into_iter().flat_map(|group| group.queues);
        queues.map(|queue| queue.id).collect()
    })
}

fn of_programs(names: impl Fn(ProgramInfo) -> Vec<String> + Send + Sync + 'static) -> ArgValueCandidates {
    ArgValueCandidates::new(move || {
        let mut all: Vec<String> = programs().into_iter().flat_map(&names).collect();
        all.sort();
        all.dedup();
        // Names with characters that a terminal would act on are not put on its command line.
        all.retain(|name| escaped(name) == name.as_str());
        all.into_iter().map(CompletionCandidate::new).collect()
    })
}

/// Programs of the daemon that a command would ask; none where it does not answer.
fn programs() -> Vec<ProgramInfo> {
    let answer = client::ask(None, Request::Ps).unwrap_or_default().into_iter();
    answer.filter_map(|part| if let DaemonMsg::Program(program) = part { Some(*program) } else { None }).collect()
}

/// Candidates for a command of the user's own and its arguments: programs, then files.
pub(crate) fn command() -> ArgValueCompleter {
    ArgValueCompleter::new(OwnCommand)
}

struct OwnCommand;

impl ValueCompleter for OwnCommand {
    fn complete(&self, current: &OsStr) -> Vec<CompletionCandidate> {
        self.complete_at(1, current)
    }

    fn complete_at(&self, at: usize, current: &OsStr) -> Vec<CompletionCandidate> {
        let text = current.to_string_lossy();
        if at > 0 || text.contains('/') || text.is_empty() {
            return PathCompleter::any().complete(current);
        }
        let mut found: Vec<String> = std::env::var_os("PATH")
            .iter()
            .flat_map(std::env::split_paths)
            .flat_map(|folder| programs_in(&folder, &text))
            .collect();
        found.sort();
        found.dedup();
        let mut all: Vec<CompletionCandidate> = found.into_iter().map(CompletionCandidate::new).collect();
        all.extend(PathCompleter::any().complete(current));
        all
    }
}

fn programs_in(folder: &Path, begin: &str) -> Vec<String> {
    use std::os::unix::fs::PermissionsExt;
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_program = |path: &Path| path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    let found =
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(begin) && is_program(&entry.path()));
    found.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}
