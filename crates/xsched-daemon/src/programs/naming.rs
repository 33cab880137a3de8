//! Names of programs and of their jobs.

use xsched_proto::program;

use crate::identity::User;

/// Name of a program: the script that an interpreter runs, else the file name of its executable.
pub(crate) fn called_by<'a>(command: &'a [String], exe: &'a str) -> &'a str {
    program::script(command).unwrap_or_else(|| program::file_name(exe))
}

/// Job of a user's program as it was given, unless `xsched run` has made it up.
pub(crate) fn named_of(job: Option<&str>, user: User) -> Option<&str> {
    without_user(job?, user).filter(|job| !is_made_up(job))
}

fn without_user(job: &str, user: User) -> Option<&str> {
    job.strip_prefix(&format!("{user}:"))
}

fn is_made_up(job: &str) -> bool {
    let parts: Vec<&str> = job.split('-').collect();
    matches!(parts[..], ["run", pid, when] if pid.parse::<u32>().is_ok() && u64::from_str_radix(when, 16).is_ok())
}
