//! `xsched man`.

use clap_mangen::Man;

use crate::failure::{Error, Result, print};

/// Prints the manual page: the overview, then every subcommand.
pub(crate) fn main(command: clap::Command) -> Result {
    let page = page(command).map_err(|e| Error::environment(format!("cannot make the manual page: {e}")))?;
    print(&page)
}

fn page(mut command: clap::Command) -> std::io::Result<String> {
    command.build();
    let mut out = Vec::new();
    let man = Man::new(command.clone());
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    let mut page = text(out)?;
    page.push_str(&as_typed(command.get_after_help()));
    page.push_str(".SH COMMANDS\n");
    for sub in command.get_subcommands().filter(|s| !s.is_hide_set()) {
        let mut out = Vec::new();
        let man = Man::new(sub.clone());
        man.render_synopsis_section(&mut out)?;
        man.render_description_section(&mut out)?;
        man.render_options_section(&mut out)?;
        page.push_str(&format!(".SS \"{}\"\n", sub.get_name()));
        // Parts of this section, not sections of their own: a paragraph each.
        for line in text(out)?.lines() {
            page.push_str(if line.starts_with(".SH ") { ".PP" } else { line });
            page.push('\n');
        }
        page.push_str(&as_typed(sub.get_after_help()));
    }
    Ok(page)
}

fn text(out: Vec<u8>) -> std::io::Result<String> {
    String::from_utf8(out).map_err(std::io::Error::other)
}

/// Examples and tables keep their lines.
fn as_typed(help: Option<&clap::builder::StyledStr>) -> String {
    let Some(help) = help else { return String::new() };
    let lines = help.to_string().replace('\\', "\\e").replace('-', "\\-");
    // A full stop or quote at the start of a line would be a request to the formatter.
    let lines: String = lines.lines().map(|line| format!("\\&{line}\n")).collect();
    format!(".PP\n.nf\n{lines}.fi\n")
}
