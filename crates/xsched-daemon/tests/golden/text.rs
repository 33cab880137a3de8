//! Text of a record: words, messages and answers, without parts that differ from one run to the next.

use std::sync::atomic::Ordering::SeqCst;

use xsched_daemon::Error;
use xsched_proto::gate::Gate;
use xsched_proto::segment::GroupSlot;
use xsched_proto::wire::{DaemonMsg, GroupInfo, ProgramInfo};

use crate::world::{NO_PROCESS, World};

impl World {
    pub(crate) fn answer_text(&self, answer: Result<Vec<DaemonMsg>, Error>) -> String {
        match answer {
            Ok(parts) if parts.is_empty() => "ok".into(),
            Ok(parts) => parts.iter().map(|part| self.message_text(part)).collect::<Vec<_>>().join("; "),
            Err(why) => self.error_text(&why),
        }
    }

    pub(crate) fn words_text(&self, words: &GroupSlot) -> String {
        let gate = words.gate.load();
        let mut text = if gate.is_granted() { "+".to_owned() } else { "-".to_owned() };
        let bits = [
            (Gate::YIELDS, 'Y'),
            (Gate::DETACHED, 'D'),
            (Gate::CONTENDED, 'C'),
            (Gate::EXCLUSIVE, 'X'),
            (Gate::MUST_ANNOUNCE, 'M'),
            (Gate::INSPECT, 'I'),
            (Gate::DEVICE_GATES_BYPASSED, 'P'),
        ];
        text.extend(bits.into_iter().filter(|(bit, _)| gate.has(*bit)).map(|(_, letter)| letter));
        if self.setting.hides_exclusive {
            text.retain(|letter| letter != 'X');
        }
        let figures = [
            ('b', &words.budget_us),
            ('l', &words.level),
            ('n', &words.grants),
            ('t', &words.budget_commands),
            ('a', &words.batch_commands),
        ];
        for (letter, word) in figures {
            let value = word.load(SeqCst);
            if value != u32::from(letter == 'l') {
                text.push_str(&format!(" {letter}{value}"));
            }
        }
        if gate.yields() {
            text.push_str(&format!(" y{}/{}", words.yields_to.load(SeqCst), words.yields_epoch.load(SeqCst)));
        }
        text
    }

    pub(crate) fn message_text(&self, message: &DaemonMsg) -> String {
        match message {
            DaemonMsg::Refused(why) => self.error_text(why),
            DaemonMsg::Welcome { priority, domains, .. } => format!("welcome {priority} {}", domains.name()),
            DaemonMsg::GroupAdded { slot, id, priority, policy } => {
                format!("added {slot} g{} {priority} {policy}", self.place_of(*id))
            }
            DaemonMsg::QueuePriority { slot, priority } => format!("queue {slot} {priority}"),
            DaemonMsg::Interrupt { slot, on } => format!("interrupt {slot} {on}"),
            DaemonMsg::Timeslice { slot, us } => format!("slice {slot} {us}"),
            DaemonMsg::Backlog { page, epoch, own } => format!("page {page} {epoch}{}", if *own { " own" } else { "" }),
            DaemonMsg::Priority { priority } => format!("priority {priority}"),
            DaemonMsg::Note { text } => format!("note {}", self.named(text)),
            DaemonMsg::RefusedProgram(refused) => format!("refused {}: {}", refused.name, refused.why),
            DaemonMsg::Changed(changed) => {
                let values = changed.values.iter().map(|value| format!("{} {} > {}", value.what, value.was, value.now));
                format!("{} {}", changed.name, values.collect::<Vec<_>>().join(", "))
            }
            DaemonMsg::Policy(policy) => {
                let params = policy.params.iter().map(|param| format!("{}={}", param.name, param.value));
                let current = if policy.current { "*" } else { "" };
                format!("{}{current} {:?} on {:?}", policy.name, params.collect::<Vec<_>>(), policy.devices)
            }
            DaemonMsg::Daemon(daemon) => format!("{}, {} dropped", daemon.policy, daemon.dropped_clients),
            DaemonMsg::Device(device) => device.device.clone(),
            DaemonMsg::Program(program) => program_text(program),
            other => format!("{other:?}"),
        }
    }

    fn error_text(&self, why: &Error) -> String {
        format!("refused {} {}", why.exit_code(), self.named(&why.to_string()))
    }

    /// Line of the log with numbers of groups by the order of their appearance, and without those of queues.
    pub(crate) fn numbered(&self, line: &str) -> String {
        let number = |word: &str| {
            let (kind, digits) = word.split_at_checked(1)?;
            let id: u64 = digits.trim_end_matches(':').parse().ok()?;
            match kind {
                "g" => Some(word.replace(&id.to_string(), &self.place_of(id).to_string())),
                "q" => Some(word.replace(&id.to_string(), "")),
                _ => None,
            }
        };
        line.split(' ').map(|word| number(word).unwrap_or_else(|| word.to_owned())).collect::<Vec<_>>().join(" ")
    }

    /// Place of a group in the order of appearance.
    fn place_of(&self, id: u64) -> usize {
        self.ids.iter().position(|known| *known == id).map_or(0, |at| at + 1)
    }

    /// Replaces process ids and the path of this test by names.
    pub(crate) fn named(&self, text: &str) -> String {
        let exe = std::env::current_exe().unwrap();
        let text = text.replace(exe.to_str().unwrap(), "(exe)");
        let text = text.replace(self.folder.path().to_str().unwrap(), "(folder)");
        let own = rustix::process::geteuid().as_raw();
        let mut named = String::new();
        for piece in text.split_inclusive(|c: char| !c.is_ascii_digit()) {
            let digits = piece.trim_end_matches(|c: char| !c.is_ascii_digit());
            let known = |pid: u32| self.programs.iter().find(|(_, p)| p.pid() == pid).map(|(name, _)| name.to_string());
            let name = digits.parse().ok().and_then(|pid| match pid {
                _ if pid == own && own > 0 => Some("0".to_owned()),
                _ if pid == std::process::id() => Some("(test)".into()),
                _ if pid == self.daemon.id() => Some("(daemon)".into()),
                NO_PROCESS => Some("(none)".into()),
                _ => known(pid),
            });
            named.push_str(&name.unwrap_or_else(|| digits.to_owned()));
            named.push_str(&piece[digits.len()..]);
        }
        named
    }
}

/// Text of a program in the answer of `ps`, without durations and their effects.
fn program_text(program: &ProgramInfo) -> String {
    let hints = program.hints.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",");
    let limited = if program.limited { " limited" } else { "" };
    let job = program.job.as_deref().unwrap_or("-");
    let (name, priority, from, domains) =
        (&program.name, program.priority, program.class_from.text(), program.domains.name());
    let mut text = format!("{name} {priority} {from}{limited} {domains} {job} [{hints}]");
    for group in &program.groups {
        let GroupInfo { device, platform, priority, level, threshold, batch, suspensions, .. } = group;
        let slice = group.timeslice_us.map_or_else(String::new, |us| format!(" s{us}"));
        let asked = group.share_asked_percent.map_or_else(String::new, |percent| format!(" {percent:.1}%"));
        text.push_str(&format!(
            ", {device} {} {priority} {:?} l{level} t{threshold} a{batch} c{suspensions} q{}{slice}{asked}",
            platform.name(),
            group.state,
            group.queues.len()
        ));
    }
    text
}

/// Line of the log without durations and their effects.
pub(crate) fn untimed(line: &str) -> &str {
    line.split_once(" times, ").map_or(line, |(counts, _)| counts)
}
