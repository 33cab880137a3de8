//! Choice of a policy, with the values of its parameters.

use xsched_proto::Error;

use crate::GroupView;
use crate::entry::Entry;
use crate::params::Params;
use crate::registry;
use crate::share::Node;

/// A policy and its parameters.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The policy.
    pub entry: &'static Entry,
    /// Its parameters.
    pub(crate) params: Params,
}

/// The name, and the parameters that are not at their defaults: `kedf k=2`.
impl core::fmt::Display for Choice {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.entry.name)?;
        for (name, value) in self.values() {
            let param = self.entry.params.iter().find(|p| p.name == name);
            if param.is_some_and(|p| p.accepts.default_text() != value) {
                write!(f, " {name}={value}")?;
            }
        }
        Ok(())
    }
}

impl PartialEq for Choice {
    fn eq(&self, other: &Choice) -> bool {
        std::ptr::eq(self.entry, other.entry) && self.params == other.params
    }
}

impl Choice {
    /// A policy by name or alias, in any case, with every parameter at its default.
    ///
    /// # Errors
    /// There is no such policy: one line that says what is accepted.
    pub fn named(name: &str) -> Result<Choice, Error> {
        Ok(Choice { entry: registry::find(name)?, params: Params::default() })
    }

    /// The policy with this name and these parameters.
    ///
    /// # Errors
    /// There is no such policy or parameter, or a value is not accepted: one line that says what is.
    pub fn with<'a>(name: &str, params: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Choice, Error> {
        let mut choice = Choice::named(name)?;
        for (name, text) in params {
            choice.set(name, text)?;
        }
        Ok(choice)
    }

    fn set(&mut self, name: &str, text: &str) -> Result<(), Error> {
        let entry = self.entry;
        let Some(param) = entry.params.iter().find(|p| p.name.eq_ignore_ascii_case(name)) else {
            let names: Vec<_> = entry.params.iter().map(|p| p.name).collect();
            let accepted = if names.is_empty() { "none, it has no parameters".to_owned() } else { names.join(", ") };
            return Err(Error::value(name, &format!("parameter of {}", entry.name), accepted));
        };
        let value = param.accepts.parse(text);
        let value = value.ok_or_else(|| Error::value(text, param.name, param.accepts.accepted()))?;
        self.params.given.retain(|(known, _)| *known != param.name);
        if value != param.accepts.default() {
            self.params.given.push((param.name, value));
            self.params.given.sort_unstable();
        }
        Ok(())
    }

    /// The parameters with their values, as users type them.
    pub fn values(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.entry.params.iter().map(|p| (p.name, p.accepts.text(self.params.number(p))))
    }

    /// Steps from the top of a device's shares to the party that a group belongs to.
    pub fn way(&self, group: &GroupView) -> Vec<Node> {
        let mut way = Vec::new();
        (self.entry.way)(&self.params)(group, &mut way);
        way
    }

    /// Makes an instance for one device. Those of one arbiter should not act at random in step: `salt` differs.
    pub(crate) fn make(&self, salt: u64) -> Box<dyn crate::Policy> {
        let mut params = self.params.clone();
        params.seed ^= salt;
        (self.entry.make)(&params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_checked_and_what_is_left_out_has_its_default() {
        let values = |choice: &Choice| choice.values().collect::<Vec<_>>();
        assert_eq!(values(&Choice::named("kedf").unwrap()), [("k", "1".to_owned())]);
        assert_eq!(values(&Choice::with("KEDF", [("K", "3")]).unwrap()), [("k", "3".to_owned())]);
        let line = |name, param| Choice::with(name, [param]).unwrap_err().to_string();
        assert_eq!(line("kedf", ("k", "65")), "'65' is no k: use a number from 1 to 64");
        assert_eq!(line("kedf", ("q", "1")), "'q' is no parameter of kedf: use k");
        assert_eq!(line("up", ("k", "1")), "'k' is no parameter of up: use none, it has no parameters");
        assert_eq!(line("hpf", ("k", "1")), "'k' is no parameter of hpf: use interactive");
        assert_eq!(line("mlfq", ("recovery", "never")), "'never' is no recovery: use soft or periodic");
    }

    #[test]
    fn a_value_that_is_the_default_makes_no_other_choice() {
        assert_eq!(Choice::with("kedf", [("k", "1")]).unwrap(), Choice::named("kedf").unwrap());
        assert_ne!(Choice::with("kedf", [("k", "2")]).unwrap(), Choice::named("kedf").unwrap());
        assert_ne!(Choice::named("up").unwrap(), Choice::named("pup").unwrap());
    }
}
