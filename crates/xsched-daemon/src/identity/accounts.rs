//! Numbers of accounts by name, from the machine's name service (NSS): its files, LDAP, SSSD, systemd.
//!
//! A directory may answer late or never. Lookups therefore happen on a thread of their own, which is left behind after [`ACCOUNTS_MS`].

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::tuning::{ACCOUNTS_MS, ACCOUNTS_STUCK_MAX};

/// Answer of the name service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Account {
    /// Number of the account.
    Id(u32),
    /// No account has the name.
    Unknown,
    /// No answer came in time, or the name service failed.
    NoAnswer,
}

/// Lookups that have not returned, of all threads that were left behind.
static STUCK: AtomicUsize = AtomicUsize::new(0);

/// Looks up accounts, for at most [`ACCOUNTS_MS`] in all.
pub(crate) fn look_up(names: BTreeSet<String>) -> BTreeMap<String, Account> {
    if names.is_empty() {
        return BTreeMap::new();
    }
    look_up_by(names, Duration::from_millis(ACCOUNTS_MS), account)
}

fn look_up_by(
    names: BTreeSet<String>,
    wait: Duration,
    ask: impl Fn(&str) -> Account + Send + 'static,
) -> BTreeMap<String, Account> {
    let mut found: BTreeMap<String, Account> = names.iter().map(|name| (name.clone(), Account::NoAnswer)).collect();
    if STUCK.load(Relaxed) >= ACCOUNTS_STUCK_MAX {
        return found;
    }
    let (answers, answered) = mpsc::channel();
    let body = move || {
        for name in names {
            let answer = ask(&name);
            if answers.send((name, answer)).is_err() {
                break;
            }
        }
        STUCK.fetch_sub(1, Relaxed);
    };
    STUCK.fetch_add(1, Relaxed);
    if std::thread::Builder::new().name("xsched-accounts".into()).spawn(body).is_err() {
        STUCK.fetch_sub(1, Relaxed);
        return found;
    }
    let until = Instant::now() + wait;
    while let Ok((name, answer)) = answered.recv_timeout(until.saturating_duration_since(Instant::now())) {
        found.insert(name, answer);
    }
    found
}

/// Asks the name service for an account.
fn account(name: &str) -> Account {
    let Ok(name) = CString::new(name) else { return Account::Unknown };
    let mut texts = vec![0; 1 << 10];
    loop {
        let mut entry = MaybeUninit::<libc::passwd>::uninit();
        let mut result = std::ptr::null_mut();
        // SAFETY: the name is a C string; the other pointers are to memory of this function, of the length that is passed.
        let failed = unsafe {
            libc::getpwnam_r(name.as_ptr(), entry.as_mut_ptr(), texts.as_mut_ptr(), texts.len(), &raw mut result)
        };
        match failed {
            // SAFETY: a result that is not null points to the entry, which the call has filled.
            0 if !result.is_null() => return Account::Id(unsafe { entry.assume_init().pw_uid }),
            0 | libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM => return Account::Unknown,
            libc::ERANGE if texts.len() < 1 << 20 => texts.resize(texts.len() * 4, 0),
            libc::EINTR => (),
            _ => return Account::NoAnswer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_name_service_knows_root_and_not_everybody() {
        let found = look_up(names(&["root", "nobody-of-this-name"]));
        assert_eq!((found["root"], found["nobody-of-this-name"]), (Account::Id(0), Account::Unknown));
        assert_eq!(account("a\0b"), Account::Unknown);
        assert_eq!(look_up(names(&[])), BTreeMap::new());
    }

    #[test]
    fn a_directory_that_does_not_answer_is_left_behind() {
        let (open, closed) = mpsc::channel::<()>();
        let asks = move |name: &str| match name {
            "slow" => {
                // Until the other end is dropped.
                let _ = closed.recv();
                Account::Id(7)
            }
            _ => Account::Unknown,
        };
        let found = look_up_by(names(&["a", "slow", "z"]), Duration::from_millis(20), asks);
        assert_eq!((found["slow"], found["z"]), (Account::NoAnswer, Account::NoAnswer));
        drop(open);
    }
}
