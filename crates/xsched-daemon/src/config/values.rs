//! Single values of configuration files, read by the parsers of the command line.

use std::fmt;

use serde::de::{self, Deserializer, Visitor};

use crate::Error;

/// Reads a number within bounds.
pub(super) fn number<'de, D: Deserializer<'de>>(d: D, min: u32, max: u32) -> Result<u32, D::Error> {
    scalar(d, "a number", |text| match text.parse::<u32>() {
        Ok(n) if (min..=max).contains(&n) => Ok(n),
        _ => Err(Error::input(format!("'{text}' is out of range: use a number from {min} to {max}"))),
    })
}

/// Reads a string or an integer as text, so that the parsers of the command line serve here too.
pub(super) fn scalar<'de, D: Deserializer<'de>, T>(
    d: D,
    accepted: &'static str,
    parse: impl Fn(&str) -> Result<T, Error>,
) -> Result<T, D::Error> {
    struct Scalar(&'static str);
    impl Visitor<'_> for Scalar {
        type Value = String;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
        fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }
        fn visit_i64<E: de::Error>(self, n: i64) -> Result<String, E> {
            Ok(n.to_string())
        }
    }
    let text = d.deserialize_any(Scalar(accepted))?;
    parse(&text).map_err(de::Error::custom)
}
