//! Lists in messages, each with a largest number of entries. A longer list is refused while it is decoded, before memory is taken for it,
//! so that no message makes its receiver process more than that.

use core::fmt;
use core::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

/// Largest number of programs and queues that one command may name. A set of them fits into the bits of a word.
pub const TARGETS_MAX: usize = 64;
/// Largest number of parameters that one command may give a policy.
pub const PARAMS_MAX: usize = 32;
/// Largest number of words of a program's command line: each takes at least its blank of [`crate::program::COMMAND_MAX_BYTES`].
pub const WORDS_MAX: usize = crate::program::COMMAND_MAX_BYTES;
/// Largest number of lines of a program's description of itself in one message; further ones follow in another.
pub const DESCRIBED_MAX: usize = 256;

/// Decodes a list of at most `MAX` entries, for `#[serde(deserialize_with)]`.
pub(crate) fn at_most<'de, const MAX: usize, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    deserializer.deserialize_seq(AtMost::<MAX, T>(PhantomData))
}

struct AtMost<const MAX: usize, T>(PhantomData<T>);

impl<'de, const MAX: usize, T: Deserialize<'de>> Visitor<'de> for AtMost<MAX, T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {MAX} entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Vec<T>, A::Error> {
        let announced = entries.size_hint().unwrap_or(0);
        if announced > MAX {
            return Err(A::Error::invalid_length(announced, &self));
        }
        let mut list = Vec::with_capacity(announced);
        while let Some(entry) = entries.next_element()? {
            if list.len() == MAX {
                return Err(A::Error::invalid_length(MAX + 1, &self));
            }
            list.push(entry);
        }
        Ok(list)
    }
}
