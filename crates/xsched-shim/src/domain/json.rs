//! Reader of JSON as people write it: with `//` and `/* */` comments and trailing commas. It supports only the needs of
//! a file of rules, so that the preload library does not bring a full parser into every program.

use xsched_proto::Error;

/// Levels of nesting accepted.
const DEPTH: usize = 16;

/// A value; numbers are kept as text, since no rule has any.
#[derive(Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
    List(Vec<Value>),
    Map(Vec<(String, Value)>),
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

/// Reads one value. An error names the line.
pub(super) fn read(text: &str) -> Result<Value, Error> {
    let mut reader = Reader { text: text.as_bytes(), at: 0 };
    let result = reader.value(0).and_then(|value| match reader.peek()? {
        None => Ok(value),
        Some(_) => Err(Error::input("something follows the end")),
    });
    let line = 1 + reader.text[..reader.at.min(reader.text.len())].iter().filter(|b| **b == b'\n').count();
    result.map_err(|why: Error| why.within(format_args!("line {line}")))
}

impl Reader<'_> {
    /// The next byte that is neither white space nor in a comment.
    fn peek(&mut self) -> Result<Option<u8>, Error> {
        loop {
            let rest = &self.text[self.at..];
            match rest {
                [b' ' | b'\t' | b'\r' | b'\n', ..] => self.at += 1,
                [b'/', b'/', ..] => self.at += rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len()),
                [b'/', b'*', ..] => match rest.windows(2).skip(2).position(|two| two == b"*/") {
                    Some(end) => self.at += end + 4,
                    None => return Err(Error::input("a comment does not end")),
                },
                _ => return Ok(rest.first().copied()),
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, Error> {
        if depth > DEPTH {
            return Err(Error::input("nested too deeply"));
        }
        match self.peek()? {
            Some(b'{') => self.map(depth),
            Some(b'[') => {
                let mut list = Vec::new();
                self.at += 1;
                while !self.ends(b']')? {
                    list.push(self.value(depth + 1)?);
                    self.comma(b']')?;
                }
                Ok(Value::List(list))
            }
            Some(b'"') => Ok(Value::Text(self.text()?)),
            Some(_) => self.word(),
            None => Err(Error::input("a value is missing")),
        }
    }

    fn map(&mut self, depth: usize) -> Result<Value, Error> {
        let mut map = Vec::new();
        self.at += 1;
        while !self.ends(b'}')? {
            if self.peek()? != Some(b'"') {
                return Err(Error::input("a name in quotes is missing"));
            }
            let name = self.text()?;
            if self.peek()? != Some(b':') {
                return Err(Error::input(format!("a ':' is missing after \"{name}\"")));
            }
            self.at += 1;
            map.push((name, self.value(depth + 1)?));
            self.comma(b'}')?;
        }
        Ok(Value::Map(map))
    }

    /// Consumes a closing bracket if it is next, and returns whether it was.
    fn ends(&mut self, bracket: u8) -> Result<bool, Error> {
        let ends = self.peek()? == Some(bracket);
        self.at += usize::from(ends);
        Ok(ends)
    }

    fn comma(&mut self, bracket: u8) -> Result<(), Error> {
        match self.peek()? {
            Some(b',') => self.at += 1,
            Some(b) if b == bracket => {}
            _ => return Err(Error::input(format!("a ',' or '{}' is missing", char::from(bracket)))),
        }
        Ok(())
    }

    fn text(&mut self) -> Result<String, Error> {
        let mut bytes = Vec::new();
        self.at += 1;
        loop {
            let byte = *self.text.get(self.at).ok_or_else(|| Error::input("a text does not end"))?;
            self.at += 1;
            match byte {
                b'"' => return String::from_utf8(bytes).map_err(|_| Error::input("a text is not UTF-8")),
                b'\n' => return Err(Error::input("a text does not end")),
                b'\\' => self.escape(&mut bytes)?,
                other => bytes.push(other),
            }
        }
    }

    fn escape(&mut self, bytes: &mut Vec<u8>) -> Result<(), Error> {
        let byte = *self.text.get(self.at).ok_or_else(|| Error::input("a text does not end"))?;
        self.at += 1;
        let plain = match byte {
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'"' | b'\\' | b'/' => char::from(byte),
            b'u' => {
                let digits = self.text.get(self.at..self.at + 4).and_then(|d| std::str::from_utf8(d).ok());
                self.at += 4;
                let code = digits.and_then(|d| u32::from_str_radix(d, 16).ok()).and_then(char::from_u32);
                code.ok_or_else(|| Error::input("a \\u needs four digits of a character"))?
            }
            other => return Err(Error::input(format!("'\\{}' means nothing", char::from(other)))),
        };
        bytes.extend(plain.encode_utf8(&mut [0; 4]).bytes());
        Ok(())
    }

    fn word(&mut self) -> Result<Value, Error> {
        let rest = &self.text[self.at..];
        let is_part = |b: &u8| b.is_ascii_alphanumeric() || b"+-.".contains(b);
        let length = rest.iter().position(|b| !is_part(b)).unwrap_or(rest.len());
        let word = String::from_utf8_lossy(&rest[..length]).into_owned();
        let value = match word.as_str() {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            "null" => Value::Null,
            _ if word.parse::<f64>().is_ok() => Value::Number(word),
            _ => {
                return Err(Error::input(format!(
                    "'{}' is no value",
                    String::from_utf8_lossy(&rest[..length.clamp(1, 20).min(rest.len())])
                )));
            }
        };
        self.at += length;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_a_comma_too_many_are_read_over() {
        let text =
            "// rules\n{ \"a\": [\"x\\\"\\u00e9\", 1.5e3, true,], /* all\nof it */ \"http://b\": { }, // end\n}\n";
        let list = Value::List(vec![Value::Text("x\"é".into()), Value::Number("1.5e3".into()), Value::Bool(true)]);
        let map = Value::Map(vec![("a".into(), list), ("http://b".into(), Value::Map(vec![]))]);
        assert_eq!(read(text), Ok(map));
        assert_eq!(read("null // nothing"), Ok(Value::Null));
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        for (text, says) in [
            ("{\n\"a\" 1}", "line 2: a ':' is missing after \"a\""),
            ("[1 2]", "line 1: a ',' or ']' is missing"),
            ("{\n\n a: 1}", "line 3: a name in quotes is missing"),
            ("\"abc", "line 1: a text does not end"),
            ("/* x", "line 1: a comment does not end"),
            ("{} {}", "line 1: something follows the end"),
            ("[yes]", "line 1: 'yes' is no value"),
            ("", "line 1: a value is missing"),
            ("\"\\q\"", "line 1: '\\q' means nothing"),
            ("é", "is no value"),
        ] {
            let e = read(text).unwrap_err();
            assert!(e.line().contains(says), "{text}: {e}");
        }
        assert!(read(&"[".repeat(100)).unwrap_err().line().contains("nested too deeply"));
    }
}
