//! Parameters of policies, and the values they were given.

/// A parameter of a policy.
#[derive(Debug)]
pub struct Param {
    /// The name users type: `k` in `xsched policy set kedf k=2`.
    pub name: &'static str,
    /// One line for users.
    pub about: &'static str,
    /// Its values.
    pub accepts: Accepts,
}

/// Values that a parameter accepts.
#[derive(Debug)]
pub enum Accepts {
    /// A whole number.
    Number {
        /// The least.
        least: u64,
        /// The greatest.
        most: u64,
        /// Value unless another is given.
        default: u64,
    },
    /// One of some words, the default first.
    Word(&'static [&'static str]),
}

impl Accepts {
    pub(crate) fn parse(&self, text: &str) -> Option<u64> {
        match self {
            Accepts::Number { least, most, .. } => text.parse().ok().filter(|n| (least..=most).contains(&n)),
            Accepts::Word(words) => {
                let at = words.iter().position(|word| word.eq_ignore_ascii_case(text))?;
                u64::try_from(at).ok()
            }
        }
    }

    pub(crate) fn default(&self) -> u64 {
        match self {
            Accepts::Number { default, .. } => *default,
            Accepts::Word(_) => 0,
        }
    }

    /// A value as users type it.
    pub(crate) fn text(&self, value: u64) -> String {
        match self {
            Accepts::Number { .. } => value.to_string(),
            Accepts::Word(words) => words[value as usize].to_owned(),
        }
    }

    /// Description for messages and documents: `a number from 1 to 64`, `soft or periodic`.
    pub fn accepted(&self) -> String {
        match self {
            Accepts::Number { least, most, .. } => format!("a number from {least} to {most}"),
            Accepts::Word(words) => words.join(" or "),
        }
    }

    /// The value that holds unless another is given, as users type it.
    pub fn default_text(&self) -> String {
        self.text(self.default())
    }
}

/// Parameters of an instance of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params {
    /// Seed of random decisions; equal seeds give equal decisions.
    pub seed: u64,
    /// Values given, other than defaults; a word as its index in the list.
    pub(crate) given: Vec<(&'static str, u64)>,
}

impl Params {
    /// The value of a number.
    pub(crate) fn number(&self, param: &Param) -> u64 {
        let given = self.given.iter().find(|(name, _)| *name == param.name);
        given.map_or_else(|| param.accepts.default(), |(_, value)| *value)
    }

    /// True if a parameter has this word as its value.
    pub(crate) fn is(&self, param: &Param, word: &str) -> bool {
        param.accepts.parse(word) == Some(self.number(param))
    }
}
