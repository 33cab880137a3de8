//! Comparison as one page of HTML that needs nothing else: no script, no file, no network. It can be sent to somebody who has no xsched.

use std::fmt::Write;

use super::super::stage::{Case, Subject};
use super::{Report, quantile, short, sorted};
use crate::failure::{Error, Result};
use crate::picture::{self, Round};

/// Style of the page: the system's font, its light or dark colours, tables that scroll by themselves on a narrow screen.
const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#24292f;--faint:#5e6770;--paper:#fff;--line:#d0d7de;--best:#1e6ebe}\
@media (prefers-color-scheme:dark){:root{--ink:#d8dee4;--faint:#98a2ac;--paper:#16181c;--line:#3a3f46;--best:#66b0fa}}\
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:960px;margin:0 auto;padding:24px}\
h1{font-size:24px;line-height:1.25;overflow-wrap:anywhere}h2{font-size:18px;margin-top:32px}\
p.answer{font-size:18px;border-left:4px solid var(--best);padding-left:12px}\
.faint,figcaption{color:var(--faint);font-size:14px}code{overflow-wrap:anywhere}\
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%}\
th,td{padding:6px 10px;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}\
th{white-space:normal}th:first-child,td:first-child{text-align:left}tr.best td{font-weight:600}\
figure{margin:16px 0}svg{max-width:100%;height:auto}";

/// Text with the characters replaced that HTML reads as its own.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

impl Report {
    /// Report as a page.
    ///
    /// # Errors
    /// Fails when a picture cannot be drawn.
    pub(crate) fn page(&self, subject: &Subject) -> Result<String> {
        let title = format!("{} beside {}", short(&subject.high), short(&subject.low));
        let rounds = self.of(Case::Alone).len();
        let mut out = format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width\">\n<title>{0}</title>\n<style>{STYLE}</style></head><body>\n\
             <h1>{0}</h1>\n<p class=\"answer\">{1}</p>\n",
            escaped(&title),
            escaped(&self.verdict())
        );
        // Writing to a String cannot fail.
        let _ = write!(
            out,
            "<p>The program that must be quick (high): <code>{}</code><br>The program that takes what is left (low): \
             <code>{}</code></p>\n<div class=\"wide\">{}</div>\n",
            escaped(&subject.high),
            escaped(&subject.low),
            self.html_table()
        );
        let measure = match subject.requests_are_lines {
            false => "A request is a time in which the high program keeps the device busy",
            true => "A request is a latency that the high program prints",
        };
        let _ = writeln!(
            out,
            "<p class=\"faint\">{measure}; P99: 99 of 100 requests took no longer. {rounds} rounds; each plays all situations, in \
             another order. “Alone” has the device for itself.</p>"
        );
        let _ = writeln!(
            out,
            "<h2>All requests</h2>\n<figure>{}<figcaption>Left is better. The lower bars have the work of the low program.\
             </figcaption></figure>",
            self.distributions(subject)?
        );
        if rounds > 1 {
            let picture = picture::rounds("P99, ms", &self.p99_of_rounds()).map_err(Error::environment)?;
            let _ = writeln!(
                out,
                "<h2>Each round</h2>\n<figure>{picture}<figcaption>P99 of each round. Lines that go up and down together: the machine \
                 was uneven, not xsched.</figcaption></figure>"
            );
        }
        let _ = writeln!(
            out,
            "<p class=\"faint\">xsched compare, xsched {}</p>\n</body></html>",
            env!("CARGO_PKG_VERSION")
        );
        Ok(out)
    }

    fn html_table(&self) -> String {
        let mut out = String::from(
            "<table>\n<tr><th></th><th>requests</th><th>P50, ms</th><th>P99, ms</th><th>worst, ms</th><th>P99 to alone</th>\
             <th>work/s</th><th>work to alone</th></tr>\n",
        );
        for case in [Case::Alone, Case::Native, Case::Xsched] {
            let f = self.figures(case);
            let (per_s, part) = f.work.map_or(("–".to_owned(), "–".to_owned()), |w| {
                (format!("{:.1}", w.per_s), format!("{:.0} %", w.to_alone * 100.0))
            });
            let _ = writeln!(
                out,
                "<tr{}><td>{}</td><td>{}</td><td>{:.2}</td><td>{:.2}</td><td>{:.2}</td><td>{:.2}×</td><td>{per_s}</td><td>{part}</td>\
                 </tr>",
                if case == Case::Xsched { " class=\"best\"" } else { "" },
                escaped(case.name()),
                f.requests,
                f.p50_ms,
                f.p99_ms,
                f.worst_ms,
                f.p99_to_alone
            );
        }
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td>–</td><td>–</td><td>–</td><td>–</td><td>–</td><td>{:.1}</td><td>100 %</td></tr></table>",
            escaped(Case::LowAlone.name()),
            self.work_per_s(Case::LowAlone)
        );
        out
    }

    /// P99 of each round, by situation.
    fn p99_of_rounds(&self) -> Vec<Round> {
        let cases = [(Case::Alone, picture::ALONE), (Case::Native, picture::NATIVE), (Case::Xsched, picture::XSCHED)];
        let of = |(case, color): (Case, _)| Round {
            label: case.name().to_owned(),
            color,
            values: self.of(case).iter().map(|p| quantile(&sorted(p.latencies_ms.iter().copied()), 0.99)).collect(),
        };
        cases.map(of).into()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{report, wish};

    #[test]
    fn a_page_needs_nothing_else_and_shows_every_figure() {
        let page = report().page(&wish().subject()).unwrap();
        for part in ["<script", "src=", "href=", "url(", "@import"] {
            assert!(!page.contains(part), "{part}: {page}");
        }
        assert_eq!(
            page.matches("http").count(),
            page.matches("http://www.w3.org/2000/svg").count(),
            "the name of a language"
        );
        assert!(page.contains("<code>serve &lt;x&gt;</code>") && !page.contains("serve <x>"), "{page}");
        assert_eq!((page.matches("<svg").count(), page.matches("<tr").count()), (2, 5));
        for figure in ["3.00×", "1.10×", "80 %", "70 %", "100 %"] {
            assert!(page.contains(figure), "{figure}: {page}");
        }
    }

    #[test]
    fn one_round_has_no_picture_of_rounds() {
        let mut one = report();
        one.rounds.iter_mut().for_each(|rounds| rounds.truncate(1));
        assert_eq!(one.page(&wish().subject()).unwrap().matches("<svg").count(), 1);
    }
}
