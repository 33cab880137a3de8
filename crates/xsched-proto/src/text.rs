//! Display of strings that come from others, such as names of programs, jobs and devices.

use std::borrow::Cow;
use std::fmt::Write;

use crate::Error;

/// Returns a text as one line without characters that a terminal would act on: control characters, line separators, and invisible marks or
/// marks of writing direction are spelt out as `\u{…}`.
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_followed) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_followed(c) {
            // Writing to a String cannot fail.
            let _ = write!(shown, "{}", c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Returns an equal JSON text in which the characters that [`escaped`] spells out are written as `\uXXXX`. In JSON they occur in strings
/// only, except for line breaks, which stay.
pub fn escaped_json(json: &str) -> Cow<'_, str> {
    let is_followed = |c: char| c > '\u{1f}' && is_followed(c);
    if !json.chars().any(is_followed) {
        return Cow::Borrowed(json);
    }
    let mut shown = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_followed(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a String cannot fail.
                let _ = write!(shown, "\\u{unit:04x}");
            }
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Checks that a name which a user chooses has only visible characters.
///
/// # Errors
/// Fails at the first character that [`escaped`] spells out, with the character and its place.
pub fn check_visible(name: &str, what: &str) -> Result<(), Error> {
    match name.chars().enumerate().find(|(_, c)| is_followed(*c)) {
        None => Ok(()),
        Some((at, c)) => Err(Error::input(format!(
            "a {what} has only characters that are seen: the {}. of this one is U+{:04X}",
            at + 1,
            u32::from(c)
        ))),
    }
}

/// Reports whether a terminal or text renderer acts on a character instead of showing it.
fn is_followed(c: char) -> bool {
    let is_invisible = matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    c.is_control() || is_invisible
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_follows_is_spelt_out_and_all_else_stays() {
        for plain in ["", "/usr/bin/python3", "größe ∆ 日本", "a\\b c"] {
            assert!(matches!(escaped(plain), Cow::Borrowed(text) if text == plain), "{plain}");
        }
        for (text, shown) in [
            ("a\x1b[31mb", "a\\u{1b}[31mb"),
            ("a\nxsched: b\r\t", "a\\u{a}xsched: b\\u{d}\\u{9}"),
            ("gnp\u{202e}exe", "gnp\\u{202e}exe"),
            ("\u{9b}31m\u{7f}", "\\u{9b}31m\\u{7f}"),
            ("a\u{2028}b\u{2066}c\u{feff}\u{200b}", "a\\u{2028}b\\u{2066}c\\u{feff}\\u{200b}"),
            ("\u{e0041}", "\\u{e0041}"),
        ] {
            assert_eq!(escaped(text), shown);
        }
    }

    #[test]
    fn a_name_has_only_characters_that_are_seen() {
        for name in ["training", "größe ∆ 日本", "a b\\c"] {
            assert!(check_visible(name, "job").is_ok(), "{name}");
        }
        for (name, place) in [
            ("a\u{202e}b", "2. of this one is U+202E"),
            ("\u{2066}a", "1."),
            ("ab\u{200b}", "3."),
            ("a\n", "2."),
            ("\u{e0041}", "U+E0041"),
        ] {
            assert!(check_visible(name, "job").unwrap_err().line().contains(place), "{name:?}");
        }
    }

    #[test]
    fn json_keeps_its_meaning() {
        let plain = "{\n  \"a\": \"ä\"\n}";
        assert!(matches!(escaped_json(plain), Cow::Borrowed(text) if text == plain));
        assert_eq!(escaped_json("[\"\u{202e}\u{e0041}\u{9b}\"]"), "[\"\\u202e\\udb40\\udc41\\u009b\"]");
    }
}
