//! Programs of the last hour where no daemon answers, by the records that it has left.

use std::fmt::Write;
use std::time::Duration;

use xsched_daemon::StoredProgram;
use xsched_proto::text::escaped;
use xsched_proto::units;

use super::{Args, Sort};
use crate::failure::{Result, print};
use crate::users::Names;
use crate::width::{self, Width, cut};
use crate::{client, stored};

/// Time for which a daemon shows programs that have ended.
const PAST: Duration = Duration::from_secs(3_600);

/// Prints the programs, for `ps --all`.
///
/// # Errors
/// No daemon answers: where its records are not asked for, do not have what is asked for, or are not there.
pub(super) fn show(args: &Args) -> Result {
    let asks_for_more = args.json || args.queues || args.sort != Sort::Pid;
    if !args.all || asks_for_more {
        return Err(client::absent(args.socket.as_deref()));
    }
    let stored = stored::find(args.socket.as_deref())?;
    let mut programs = stored.programs(stored::ms_before_now(PAST))?;
    programs.retain(|program| is_asked_for(args, program));
    let width = if args.wide { Width::Unlimited } else { width::of_output() };
    print(&table(&programs, stored::ms_before_now(Duration::ZERO), width))
}

fn is_asked_for(args: &Args, program: &StoredProgram) -> bool {
    let is_here = |asked: &String| program.device.ends_with(asked.as_str());
    (args.pids.is_empty() || args.pids.contains(&program.pid))
        && args.user.is_none_or(|uid| program.user == uid.to_string())
        && args.job.as_ref().is_none_or(|job| program.job.as_ref() == Some(job))
        && args.class.is_none_or(|class| class == program.class)
        && args.device.as_ref().is_none_or(is_here)
}

/// Table of them, of which the program's name is cut where there is no room.
fn table(programs: &[StoredProgram], now_ms: u64, width: Width) -> String {
    if programs.is_empty() {
        return "no program of the last hour is recorded\n".into();
    }
    let mut names = Names::default();
    let mut user = |program: &StoredProgram| match program.user.parse() {
        Ok(uid) => names.of(uid).to_owned(),
        Err(_) => program.user.clone(),
    };
    let fitting = |line: String| match width {
        Width::Columns(columns) => cut(line.trim_end(), columns),
        Width::Unlimited => line,
    };
    let mut out = fitting(line(["PID", "USER", "CLASS", "DEVICE", "LAST SEEN", "GPU TIME", "PROGRAM"]));
    out.push('\n');
    for program in programs {
        let job = program.job.as_ref().map(|job| format!(" (job {})", escaped(job))).unwrap_or_default();
        let (pid, user) = (program.pid.to_string(), user(program));
        let seen = format!("{} ago", units::rough_us(now_ms.saturating_sub(program.to_ms) * 1_000));
        let (time, name) = (units::of_ns(program.gpu_ns), format!("{}{job}", escaped(&program.program)));
        let cells: [&str; 7] =
            [&pid, &escaped(&user), program.class.name(), &escaped(&program.device), &seen, &time, &name];
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{}", fitting(line(cells)));
    }
    out
}

fn line([pid, user, class, device, seen, time, program]: [&str; 7]) -> String {
    format!("{pid:>8} {user:<10} {class:<8} {device:<8} {seen:>10} {time:>9}  {program}")
}
