//! Names of users, as the machine's name service has them.

use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::failure::Error;

/// Parses a user's name or number; returns the number.
pub fn user(text: &str) -> Result<u32, Error> {
    if let Ok(uid) = text.parse() {
        return Ok(uid);
    }
    let name = CString::new(text).ok();
    // SAFETY: the name is a C string. What is returned is valid until the next call; no other thread makes one.
    let found = name.and_then(|name| unsafe { libc::getpwnam(name.as_ptr()).as_ref() }.map(|entry| entry.pw_uid));
    found.ok_or_else(|| Error::input(format!("there is no user '{text}': use a user's name or number")))
}

/// Cache of users' names.
#[derive(Debug, Default)]
pub struct Names(HashMap<u32, String>);

impl Names {
    /// Name of a user, or the number where there is none.
    pub fn of(&mut self, uid: u32) -> &str {
        self.0.entry(uid).or_insert_with(|| name(uid).unwrap_or_else(|| uid.to_string()))
    }

    /// Name of a user that was looked up before.
    pub fn known(&self, uid: u32) -> String {
        self.0.get(&uid).cloned().unwrap_or_else(|| uid.to_string())
    }
}

/// Home of this user in the user database.
pub fn home() -> Option<PathBuf> {
    // SAFETY: takes a number. What is returned is valid until the next call; no other thread makes one.
    let entry = unsafe { libc::getpwuid(rustix::process::geteuid().as_raw()).as_ref() }?;
    // SAFETY: an entry has a home, a C string, which is copied before the next call.
    let home = unsafe { CStr::from_ptr(entry.pw_dir) };
    Some(PathBuf::from(OsStr::from_bytes(home.to_bytes()))).filter(|home| home.is_absolute())
}

fn name(uid: u32) -> Option<String> {
    // SAFETY: takes a number. What is returned is valid until the next call; no other thread makes one.
    let entry = unsafe { libc::getpwuid(uid).as_ref() }?;
    // SAFETY: an entry has a name, a C string, which is copied before the next call.
    let name = unsafe { CStr::from_ptr(entry.pw_name) };
    Some(name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_number_0() {
        assert_eq!((user("root"), user("4711")), (Ok(0), Ok(4711)));
        assert!(user("nobody-of-this-name").unwrap_err().line().contains("there is no user"));
        assert!(user("a\0b").is_err());
        let mut names = Names::default();
        assert_eq!((names.of(0).to_owned(), names.of(3_999_999_999).to_owned()), ("root".into(), "3999999999".into()));
    }
}
