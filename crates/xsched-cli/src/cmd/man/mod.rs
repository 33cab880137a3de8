//! `xsched man`: a page for each command, made from the command line, and pages on files from the reference.

mod roff;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_mangen::Man;
use xsched_proto::similar::nearest;

use crate::failure::{Error, Result, print};
use crate::reference;

/// Show a manual page, or write all of them
///
/// On a terminal the page is shown by `man`; else its source (roff) is printed.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  xsched man                     the overview
  xsched man run                 of a command
  xsched man xsched.toml         of the configuration
  xsched man --dir /usr/share/man")]
pub(crate) struct Args {
    /// A command, or a page: xsched, xsched.toml, xsched-environment
    #[arg(value_name = "PAGE", add = pages_to_choose())]
    page: Option<String>,

    /// Write all pages below this folder, as man1/xsched.1 and so on
    #[arg(long, value_name = "DIR", conflicts_with = "page")]
    dir: Option<PathBuf>,
}

const CLI: &str = include_str!("../../../../../docs/reference/cli.md");
const CONFIGURATION: &str = include_str!("../../../../../docs/reference/configuration.md");
const ENVIRONMENT: &str = include_str!("../../../../../docs/reference/environment.md");
const FILES: &str = include_str!("../../../../../docs/reference/files.md");

/// Manual page.
pub(crate) struct Page {
    pub(crate) name: String,
    pub(crate) section: char,
    pub(crate) text: String,
}

/// Shows a page, prints its source, or writes all pages.
pub(crate) fn main(args: Args, command: clap::Command) -> Result {
    let pages = pages(command).map_err(|e| Error::environment(format!("cannot make the manual pages: {e}")))?;
    if let Some(dir) = &args.dir {
        return write(&pages, dir);
    }
    let asked = args.page.unwrap_or_else(|| "xsched".into());
    let page = pages.iter().find(|page| page.name == asked || page.name == format!("xsched-{asked}"));
    let page = page.ok_or_else(|| {
        let names: Vec<&str> = pages.iter().map(|page| page.name.as_str()).collect();
        let short = |name: &&str| name.strip_prefix("xsched-").unwrap_or(name).to_owned();
        let known: Vec<String> = names.iter().map(short).collect();
        let meant = nearest(&asked, known.iter().map(String::as_str));
        let meant = meant.map_or_else(String::new, |known| format!("; did you mean {known}?"));
        Error::input(format!("there is no page '{asked}': use one of {}{meant}", names.join(", ")))
    })?;
    if std::io::stdout().is_terminal() && show(page) { Ok(ExitCode::SUCCESS) } else { print(&page.text) }
}

fn pages_to_choose() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let commands = CLI.lines().filter_map(|line| line.strip_prefix("## `xsched ")?.strip_suffix('`'));
        commands.chain(["xsched", "xsched.toml", "environment"]).map(CompletionCandidate::new).collect()
    })
}

/// Shows a page with `man`, and returns whether that worked.
fn show(page: &Page) -> bool {
    let started = Command::new("man").args(["-l", "-"]).stdin(Stdio::piped()).spawn();
    let Ok(mut man) = started else { return false };
    // A pager that was left early reads no more of it.
    let _ = man.stdin.take().map(|mut stdin| stdin.write_all(page.text.as_bytes()));
    man.wait().is_ok_and(|status| status.success())
}

fn write(pages: &[Page], dir: &Path) -> Result {
    let fail = |path: &Path, e: std::io::Error| Error::environment(format!("cannot write {}: {e}", path.display()));
    for page in pages {
        let folder = dir.join(format!("man{}", page.section));
        std::fs::create_dir_all(&folder).map_err(|e| fail(&folder, e))?;
        let file = folder.join(format!("{}.{}", page.name, page.section));
        std::fs::write(&file, &page.text).map_err(|e| fail(&file, e))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Pages of all visible commands, and of the files that have one.
pub(crate) fn pages(mut command: clap::Command) -> std::io::Result<Vec<Page>> {
    command.build();
    let visible = || command.get_subcommands().filter(|sub| !sub.is_hide_set());
    let mut pages = vec![overview(&command)?];
    for sub in visible() {
        pages.push(of_command(sub)?);
    }
    let about = "configuration of xsched's daemon";
    pages.push(of_reference("xsched.toml", '5', about, CONFIGURATION, &["xsched-daemon(1)", "xsched-config(1)"]));
    let about = "environment variables of xsched";
    pages.push(of_reference("xsched-environment", '7', about, ENVIRONMENT, &["xsched-run(1)"]));
    Ok(pages)
}

fn man(command: &clap::Command, name: &str) -> Man {
    let version = concat!("xsched ", env!("CARGO_PKG_VERSION"));
    Man::new(command.clone()).title(name.to_uppercase()).section("1").source(version).manual("xsched")
}

/// Page `xsched(1)`.
fn overview(command: &clap::Command) -> std::io::Result<Page> {
    let man = man(command, "xsched");
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    out.extend_from_slice(RAGGED.as_bytes());
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    let mut page = text(out)?;
    page.push_str(".SH COMMANDS\n");
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
        page.push_str(&format!(".TP\n\\fBxsched\\-{}\\fR(1)\n{}\n", roff::plain(sub.get_name()), roff::plain(&about)));
    }
    page.push_str(&as_typed(command.get_after_help()));
    page.push_str(&surroundings());
    page.push_str(&see_also(&["xsched.toml(5)", "xsched-environment(7)"]));
    Ok(Page { name: "xsched".into(), section: '1', text: page })
}

/// Page of a command, with its subcommands.
fn of_command(sub: &clap::Command) -> std::io::Result<Page> {
    let name = format!("xsched-{}", sub.get_name());
    let man = man(sub, &name);
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
    let mut page = text(out)? + RAGGED;
    page.push_str(&format!(".SH NAME\n{} \\- {}\n", roff::plain(&name), roff::plain(&about)));
    let mut out = Vec::new();
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    page.push_str(&text(out)?);
    for within in sub.get_subcommands().filter(|within| !within.is_hide_set() && within.get_name() != "help") {
        let mut out = Vec::new();
        let man = Man::new(within.clone());
        man.render_synopsis_section(&mut out)?;
        man.render_description_section(&mut out)?;
        man.render_options_section(&mut out)?;
        page.push_str(&format!(".SH \"{}\"\n", roff::plain(within.get_name()).to_uppercase()));
        // Headings inside become parts of this section, not sections of their own.
        for line in text(out)?.lines() {
            page.push_str(if line.starts_with(".SH ") { ".PP" } else { line });
            page.push('\n');
        }
    }
    page.push_str(&as_typed(sub.get_after_help()));
    page.push_str(&surroundings());
    page.push_str(&see_also(&["xsched(1)", "xsched.toml(5)", "xsched-environment(7)"]));
    Ok(Page { name, section: '1', text: page })
}

/// Page made from a page of the reference.
fn of_reference(name: &str, section: char, about: &str, markdown: &str, others: &[&str]) -> Page {
    let title = format!(
        ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n.TH {} {section} \"\" \"xsched {}\" \"xsched\"\n",
        roff::plain(&name.to_uppercase()),
        env!("CARGO_PKG_VERSION")
    );
    let mut text = title + RAGGED + &format!(".SH NAME\n{} \\- {}\n", roff::plain(name), roff::plain(about));
    text.push_str(&roff::body(markdown, "Description"));
    text.push_str(&format!(".SH FILES\n{}", roff::tagged(&reference::rows(FILES, "Files"))));
    text.push_str(&see_also(&[&["xsched(1)"], others].concat()));
    Page { name: name.into(), section, text }
}

/// Sections on environment, files and exit status, equal for all commands.
fn surroundings() -> String {
    let programs = reference::rows(ENVIRONMENT, "For programs");
    let is_for_all = |row: &&Vec<String>| row.first().is_some_and(|name| name == "`XSCHED_SOCKET`");
    let mut variables: Vec<Vec<String>> = programs.iter().filter(is_for_all).cloned().collect();
    variables.extend(reference::rows(ENVIRONMENT, "For the command"));
    format!(
        ".SH ENVIRONMENT\n{}.PP\n\\fBxsched\\-environment\\fR(7) has all.\n.SH FILES\n{}.SH \"EXIT STATUS\"\n{}",
        roff::tagged(&variables),
        roff::tagged(&reference::rows(FILES, "Files")),
        roff::tagged(&reference::rows(CLI, "Exit codes"))
    )
}

fn see_also(pages: &[&str]) -> String {
    let name = |page: &&str| match page.split_once('(') {
        Some((name, section)) => format!("\\fB{}\\fR({section}", roff::plain(name)),
        None => (*page).to_owned(),
    };
    format!(".SH \"SEE ALSO\"\n{}\n", pages.iter().map(name).collect::<Vec<_>>().join(",\n"))
}

/// Request that lines are not stretched to the margin: synopses have words that are longer than a line.
const RAGGED: &str = ".ad l\n";

fn text(out: Vec<u8>) -> std::io::Result<String> {
    String::from_utf8(out).map_err(std::io::Error::other)
}

/// Help text with its lines kept, for examples and tables.
fn as_typed(help: Option<&clap::builder::StyledStr>) -> String {
    let Some(help) = help.map(ToString::to_string) else { return String::new() };
    let heading = if help.starts_with("Example") { "EXAMPLES" } else { "NOTES" };
    let help = help.trim_start_matches("Examples:\n").trim_start_matches("Example:\n");
    // Otherwise a full stop or quote at the start of a line would be a request to the formatter.
    let lines: String = help.lines().map(|line| format!("\\&{}\n", roff::plain(line))).collect();
    format!(".SH {heading}\n.nf\n{lines}.fi\n")
}
