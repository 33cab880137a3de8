//! Conversion of the reference's Markdown into manual pages: headings, paragraphs, lists, tables and blocks, as far as the reference uses
//! them.

use crate::reference::{cells, without_links};

/// Body of a page: sections from its headings of the second level; the text before the first becomes a section of this name.
pub(super) fn body(markdown: &str, first: &str) -> String {
    let mut out = format!(".SH {}\n", heading(first));
    let mut lines = markdown.lines().peekable();
    let mut is_new = true;
    while let Some(line) = lines.next() {
        if line.starts_with("```") {
            out.push_str(".PP\n.RS 4\n.nf\n");
            for line in lines.by_ref().take_while(|line| !line.starts_with("```")) {
                out.push_str(&format!("\\&{}\n", plain(line)));
            }
            out.push_str(".fi\n.RE\n");
            is_new = true;
        } else if let Some(name) = line.strip_prefix("## ") {
            out.push_str(&format!(".SH {}\n", heading(name)));
            is_new = true;
        } else if line.starts_with("# ") {
            // The title of the page is in its header already.
        } else if line.starts_with('|') {
            let mut rows = vec![cells(line)];
            while let Some(row) = lines.next_if(|line| line.starts_with('|')) {
                rows.push(cells(row));
            }
            out.push_str(&table(&rows));
            is_new = true;
        } else if let Some(item) = item(line) {
            out.push_str(&format!(".IP \\(bu 2\n{}\n", text(item)));
            is_new = false;
        } else if line.trim().is_empty() {
            is_new = true;
        } else {
            if is_new {
                out.push_str(".PP\n");
            }
            out.push_str(&format!("{}\n", text(line.trim_start())));
            is_new = false;
        }
    }
    out
}

/// Rows as tagged paragraphs: the first cell is the tag, the others follow below.
pub(super) fn tagged(rows: &[Vec<String>]) -> String {
    let mut out = String::new();
    for row in rows {
        let Some((name, rest)) = row.split_first() else { continue };
        let rest: Vec<String> = rest.iter().filter(|cell| !cell.is_empty()).map(|cell| text(cell)).collect();
        out.push_str(&format!(".TP\n{}\n{}\n", text(name), rest.join("\n.br\n")));
    }
    out
}

/// Table as paragraphs: one for each row, in which each cell but the first and the last is named by the head.
fn table(rows: &[Vec<String>]) -> String {
    let Some((head, rows)) = rows.split_first() else { return String::new() };
    let named = |row: &Vec<String>| -> Vec<String> {
        let last = row.len().saturating_sub(1);
        let mut cells: Vec<String> = row.first().cloned().into_iter().collect();
        cells.extend(row.last().filter(|_| last > 0).cloned());
        for (name, cell) in head.iter().zip(row).take(last).skip(1).filter(|(_, cell)| !cell.is_empty()) {
            cells.push(format!("{name}: {cell}"));
        }
        cells
    };
    // The second row is the line of dashes below the heads.
    tagged(&rows.iter().skip(1).map(named).collect::<Vec<_>>())
}

fn item(line: &str) -> Option<&str> {
    let trimmed = line.trim_start();
    let numbered = trimmed.split_once(". ").filter(|(n, _)| n.parse::<u32>().is_ok()).map(|(_, rest)| rest);
    trimmed.strip_prefix("- ").or(numbered)
}

fn heading(text: &str) -> String {
    format!("\"{}\"", plain(&text.replace('`', "")).to_uppercase())
}

/// Line of Markdown: code and strong words become bold, links become their text.
pub(super) fn text(markdown: &str) -> String {
    let mut out = String::new();
    let mut rest = without_links(markdown);
    rest = rest.replace("**", "\u{1}").replace('`', "\u{1}");
    for (at, part) in rest.split('\u{1}').enumerate() {
        let part = plain(part);
        if at % 2 == 1 && !part.is_empty() {
            out.push_str(&format!("\\fB{part}\\fR"));
        } else {
            out.push_str(&part.replace('*', ""));
        }
    }
    // Otherwise a full stop or an apostrophe at the start of a line would be a request to the formatter.
    if out.starts_with(['.', '\'']) { format!("\\&{out}") } else { out }
}

/// Escapes characters that the formatter would interpret.
pub(super) fn plain(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-").replace('~', "\\(ti").replace('^', "\\(ha")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_of_the_reference_becomes_a_manual_page() {
        let page = "# T\n\nSee [a `b`](c.md#d).\n.hidden\n\n## `[k.x]`\n\n| key | values | what |\n| --- | --- | --- |\n\
                    | `a-b` | 1..2 | an \\| other |\n\n- one\n\n```toml\nx = 1\n```\n";
        let expected = ".SH \"DESCRIPTION\"\n.PP\nSee a \\fBb\\fR.\n\\&.hidden\n.SH \"[K.X]\"\n.TP\n\\fBa\\-b\\fR\nan | other\n\
                        .br\nvalues: 1..2\n.IP \\(bu 2\none\n.PP\n.RS 4\n.nf\n\\&x = 1\n.fi\n.RE\n";
        assert_eq!(body(page, "Description"), expected);
        assert_eq!(crate::reference::rows(page, "`[k.x]`"), [["`a-b`", "1..2", "an | other"]]);
    }
}
