//! Width of the output.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Width of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// No line may be longer than this many columns.
    Columns(usize),
    /// The output goes to a pipe or a file.
    Unlimited,
}

/// Width of standard output. `COLUMNS` wins over the terminal.
pub fn of_output() -> Width {
    let given = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok()).filter(|n| *n > 0);
    let of_terminal = || {
        let stdout = std::io::stdout();
        let size = rustix::termios::tcgetwinsize(&stdout).ok()?;
        // A terminal that does not report its width counts as one of the usual size.
        Some(if size.ws_col == 0 { 80 } else { usize::from(size.ws_col) })
    };
    given.or_else(of_terminal).map_or(Width::Unlimited, Width::Columns)
}

impl Width {
    /// Breaks a line after commas where it is too long; further lines are indented.
    pub fn fold(self, line: &str) -> String {
        let Width::Columns(columns) = self else { return format!("{line}\n") };
        let mut out = String::new();
        let mut used = 0;
        for part in line.split_inclusive(", ") {
            let wide = columns_of(part.trim_end());
            if used > 0 && used + wide > columns {
                out.truncate(out.trim_end().len());
                out.push_str("\n  ");
                used = 2;
            }
            out.push_str(part);
            used += columns_of(part);
        }
        out.push('\n');
        out
    }

    /// Breaks a line at blanks where it is too long; further lines are indented by `indent` columns.
    pub fn fill(self, line: &str, indent: usize) -> String {
        let Width::Columns(columns) = self else { return format!("{line}\n") };
        let begin = line.len() - line.trim_start().len();
        let (mut out, mut used) = (line[..begin].to_owned(), begin);
        for word in line[begin..].split_inclusive(' ') {
            let wide = columns_of(word.trim_end());
            if used > indent && used + wide > columns {
                out.truncate(out.trim_end().len());
                out.push('\n');
                out.extend(std::iter::repeat_n(' ', indent));
                used = indent;
            }
            out.push_str(word);
            used += columns_of(word);
        }
        out.push('\n');
        out
    }

    /// Breaks the sentences of a text at blanks where they are too long. Rows of tables, which have several blanks in a row, stay.
    pub fn fill_sentences(self, text: &str) -> String {
        let line = |line: &str| if line.contains("  ") { format!("{line}\n") } else { self.fill(line, 0) };
        text.lines().map(line).collect()
    }
}

/// Number of columns that a text takes.
pub fn columns_of(text: &str) -> usize {
    text.width()
}

/// Text of at most this many columns, with an ellipsis in place of the cut part.
pub fn cut(text: &str, columns: usize) -> String {
    if columns_of(text) <= columns {
        return text.to_owned();
    }
    let mut used = 1;
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used <= columns
    };
    let mut cut: String = text.chars().take_while(fits).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_cut_and_lines_are_broken_after_commas() {
        assert_eq!((cut("abc", 3), cut("abcd", 3)), ("abc".into(), "ab…".into()));
        assert_eq!(cut("模型训练", 5), "模型…", "these take two columns each");
        let line = "policy hpf, up on sim:0, daemon 7 up 3 s";
        assert_eq!(Width::Unlimited.fold(line), format!("{line}\n"));
        assert_eq!(Width::Columns(40).fold(line), format!("{line}\n"));
        assert_eq!(Width::Columns(25).fold(line), "policy hpf, up on sim:0,\n  daemon 7 up 3 s\n");
        let line = "ok    glibc  2.36 is here";
        assert_eq!(Width::Unlimited.fill(line, 13), format!("{line}\n"));
        assert_eq!(Width::Columns(18).fill(line, 13), "ok    glibc  2.36\n             is\n             here\n");
        assert_eq!(Width::Columns(8).fill("   → a longword b", 5), "   → a\n     longword\n     b\n");
        let text = "a table  1.0\n\nVerdict: all is well\n";
        assert_eq!(Width::Columns(9).fill_sentences(text), "a table  1.0\n\nVerdict:\nall is\nwell\n");
        assert_eq!(Width::Unlimited.fill_sentences(text), text);
    }
}
