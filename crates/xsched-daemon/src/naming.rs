//! What an attached program is called, which job it is of, and which user may see and control it.

use xsched_proto::program;

use crate::client::Client;
use crate::identity::User;

/// What a program is called: the script that an interpreter runs, else the file name of its executable.
pub(crate) fn called(client: &Client) -> &str {
    called_by(&client.command, &client.peer.exe)
}

/// The same, by its command and the path of its executable.
pub(crate) fn called_by<'a>(command: &'a [String], exe: &'a str) -> &'a str {
    program::script(command).unwrap_or_else(|| program::file_name(exe))
}

/// The job of a program as it was given, without its user.
pub(crate) fn own_job(client: &Client) -> Option<&str> {
    without_user(client.job.as_deref()?, client.peer.user)
}

/// The same, unless `xsched run` has made it up.
pub(crate) fn named_job(client: &Client) -> Option<&str> {
    own_job(client).filter(|job| !is_made_up(job))
}

/// The same, of a job as clients have it.
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

/// Whether a user sees and controls a program.
pub(crate) fn may(user: User, client: &Client) -> bool {
    may_see(user, client.peer.user)
}

/// Whether a user sees the programs of another.
pub(crate) fn may_see(user: User, theirs: User) -> bool {
    user.is_root() || user == theirs
}
