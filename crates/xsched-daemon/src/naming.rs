//! What an attached program is called, which job it is of, and which user may see and control it.

use xsched_proto::program;

use crate::client::Client;
use crate::identity::User;

/// What a program is called: the script that an interpreter runs, else the file name of its executable.
pub(crate) fn called(client: &Client) -> &str {
    program::script(&client.command).unwrap_or_else(|| program::file_name(&client.peer.exe))
}

/// The job of a program as it was given, without its user.
pub(crate) fn own_job(client: &Client) -> Option<&str> {
    client.job.as_deref()?.strip_prefix(&format!("{}:", client.peer.user))
}

/// The same, unless `xsched run` has made it up.
pub(crate) fn named_job(client: &Client) -> Option<&str> {
    own_job(client).filter(|job| !is_made_up(job))
}

fn is_made_up(job: &str) -> bool {
    let parts: Vec<&str> = job.split('-').collect();
    matches!(parts[..], ["run", pid, when] if pid.parse::<u32>().is_ok() && u64::from_str_radix(when, 16).is_ok())
}

/// Whether a user sees and controls a program.
pub(crate) fn may(user: User, client: &Client) -> bool {
    user.is_root() || user == client.peer.user
}
