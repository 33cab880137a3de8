//! Environment that a program is started with.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStrExt;

use xsched_policy::registry;
use xsched_proto::settings::{Mode, Settings, TOLD_OF};
use xsched_proto::wire::Platform;

use crate::failure::{Error, Result, say};

/// Environment of the program to start.
#[derive(Debug)]
pub(super) struct Environment(Vec<(OsString, OsString)>);

impl Environment {
    pub(super) fn inherited() -> Self {
        Environment(std::env::vars_os().collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<String> {
        self.0.iter().find(|(n, _)| n == name).and_then(|(_, value)| value.to_str()).map(str::to_owned)
    }

    /// Settings that the library in the program will read from the environment. The library ignores values that it does not understand;
    /// here they are an error.
    pub(super) fn settings(&self) -> Result<Settings> {
        let names = self.0.iter().filter_map(|(name, _)| name.to_str().map(str::to_owned));
        let settings = Settings::read(|name| self.get(name), names);
        let platforms = self.get("XSCHED_PLATFORMS").and_then(|list| Platform::fault_in(&list));
        if let Some(complaint) = settings.complaints.first().or(platforms.as_ref()) {
            return Err(Error::input(complaint));
        }
        if let Mode::Local(policy) = &settings.mode {
            registry::find(policy).map_err(|why| why.within("XSCHED_POLICY"))?;
        }
        Ok(settings)
    }

    /// Reports variables without effect, and tells the program so: otherwise each of its processes would report them.
    pub(super) fn tell_of(&mut self, settings: &Settings) {
        let mut told_of = self.get(TOLD_OF).unwrap_or_default();
        for (name, line) in &settings.without_effect {
            say(line);
            told_of = format!("{told_of},{name}");
        }
        if !settings.without_effect.is_empty() {
            self.set(TOLD_OF, told_of.trim_start_matches(','));
        }
    }

    pub(super) fn set(&mut self, name: &str, value: impl Into<OsString>) {
        self.unset(name);
        self.0.push((name.into(), value.into()));
    }

    pub(super) fn unset(&mut self, name: &str) {
        self.0.retain(|(n, _)| n != name);
    }

    pub(super) fn strings(&self) -> impl Iterator<Item = CString> {
        self.0.iter().filter_map(|(name, value)| CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_holds_a_name_once() {
        let mut e = Environment(vec![("A".into(), "1".into()), ("B".into(), "2".into())]);
        e.set("A", "3");
        let all: Vec<_> = e.strings().collect();
        assert_eq!(all, [c"B=2".to_owned(), c"A=3".to_owned()]);
    }
}
