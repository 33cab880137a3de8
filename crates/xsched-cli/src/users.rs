//! Names of users, as the machine's name service has them.

use std::collections::HashMap;
use std::ffi::CStr;

/// Looks up names of users, each once.
#[derive(Debug, Default)]
pub(crate) struct Names(HashMap<u32, String>);

impl Names {
    /// The name of a user, or the number where there is none.
    pub(crate) fn of(&mut self, uid: u32) -> &str {
        self.0.entry(uid).or_insert_with(|| name(uid).unwrap_or_else(|| uid.to_string()))
    }
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
        let mut names = Names::default();
        assert_eq!((names.of(0).to_owned(), names.of(3_999_999_999).to_owned()), ("root".into(), "3999999999".into()));
    }
}
