//! Patterns of the configuration.

/// Reports whether `text` matches `pattern`, in which `*` stands for any text.
pub(crate) fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or("")) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, text, is) in [
            ("/bin/a", "/bin/a", true),
            ("/bin/a", "/bin/ab", false),
            ("/bin/*", "/bin/ab", true),
            ("*python*", "/usr/bin/python3.11", true),
            ("/a*b*c", "/abc", true),
            ("/a*b*c", "/ac", false),
            ("*", "", true),
            ("a*a", "a", false),
        ] {
            assert_eq!(glob(pattern, text), is, "{pattern} {text}");
        }
    }
}
