//! Suggestions for a word that is not known.

/// Number of letters to add, leave out, change, or swap with the next one, to get from one word to another.
pub fn distance(one: &str, other: &str) -> usize {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut before = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for i in 1..=one.len() {
        let mut row = vec![i];
        for j in 1..=other.len() {
            let change = last[j - 1] + usize::from(one[i - 1] != other[j - 1]);
            let mut least = change.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[other.len()]
}

/// Word that was probably meant: the nearest known one, in upper or lower case, if it is near, else one that begins alike.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_ascii_lowercase();
    let known: Vec<&str> = known.into_iter().collect();
    let (letters, near) = known.iter().map(|name| (distance(&word, &name.to_ascii_lowercase()), *name)).min()?;
    if letters <= 1 + word.len() / 5 {
        return Some(near);
    }
    let begins = |name: &&&str| word.len() >= 3 && name.to_ascii_lowercase().starts_with(&word);
    known.iter().find(begins).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_meant_if_it_is_near() {
        let known = ["run", "ps", "policy", "suspend"];
        for (word, meant) in [
            ("rnu", Some("run")),
            ("Polciy", Some("policy")),
            ("susp", Some("suspend")),
            ("frobnicate", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
    }

    #[test]
    fn letters_are_counted() {
        for (one, other, expected) in [("", "AB", 2), ("ABC", "ABC", 0), ("ABC", "ACB", 1), ("ABC", "XABC", 1)] {
            assert_eq!(distance(one, other), expected, "{one} {other}");
            assert_eq!(distance(other, one), expected, "{other} {one}");
        }
    }
}
