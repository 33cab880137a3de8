//! Mutations of a text word by word. Random changes of bytes hardly ever turn one word of a language into another, and most of the
//! resulting texts are refused at the first line.

use xsched_testkit::Random;

/// Changes one place of a text, chosen by the seed: a word is replaced, inserted, removed or put in brackets, or a stretch is doubled or
/// removed. New words are those of the text itself and of `words`.
#[must_use]
pub fn changed(text: &[u8], words: &[&str], seed: u32) -> Vec<u8> {
    let mut random = Random(seed.into());
    let parts = parts(text, random.below(2) == 0);
    if parts.is_empty() {
        return words.get(random.below(words.len())).map(|word| word.as_bytes().to_vec()).unwrap_or_default();
    }
    let at = random.below(parts.len());
    let (before, rest) = parts.split_at(at);
    let (this, after) = (rest[0], &rest[1..]);
    // Short stretches are more frequent than long ones.
    let most = 1 << random.below(6);
    let (stretch, behind) = rest.split_at(1 + random.below(most.min(rest.len())));
    let other = match random.below(3) {
        0 => parts[random.below(parts.len())],
        _ => words.get(random.below(words.len())).map_or(this, |word| word.as_bytes()),
    };
    let all = |pieces: &[&[&[u8]]]| pieces.concat().concat();
    match random.below(8) {
        0..=2 => all(&[before, &[other], after]),
        3 => all(&[before, &[other], rest]),
        4 => all(&[before, behind]),
        5 => all(&[before, stretch, stretch, behind]),
        6 => all(&[before, &[b"["], stretch, &[b"]"], behind]),
        _ => all(&[before, &[b"{\"", other, b"\":"], stretch, &[b"}"], behind]),
    }
}

/// Splits a text into words and the single bytes between them. With `whole_strings`, a quoted string is one word.
fn parts(text: &[u8], whole_strings: bool) -> Vec<&[u8]> {
    let is_of_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte >= 0x80;
    let (mut parts, mut rest) = (Vec::new(), text);
    while let Some(first) = rest.first() {
        let string = rest[1..].iter().position(|byte| *byte == b'"').filter(|_| whole_strings && *first == b'"');
        let length = string.map_or_else(|| rest.iter().take_while(|byte| is_of_word(byte)).count(), |end| end + 2);
        let (part, behind) = rest.split_at(length.max(1));
        parts.push(part);
        rest = behind;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_the_sum_of_its_parts() {
        let text = b"[a]\nis = \"c d\" # \xff\"";
        for whole_strings in [false, true] {
            assert_eq!(parts(text, whole_strings).concat(), text);
        }
        assert_eq!(parts(b"is=\"c d\"", true), [&b"is"[..], b"=", b"\"c d\""]);
        assert_eq!(parts(b"\"c d", true), [&b"\""[..], b"c", b" ", b"d"]);
    }

    #[test]
    fn a_word_becomes_another_within_some_thousand_changes() {
        let text = b"is = \"cfx\"\ninstead_of = \"hpf\"\n";
        let wanted = b"is = \"cfs\"\ninstead_of = \"hpf\"\n";
        let words = ["up", "cfs", "fair"];
        assert!((0..5_000).any(|seed| changed(text, &words, seed) == wanted));
        assert_eq!(changed(b"", &[], 1), b"");
    }
}
