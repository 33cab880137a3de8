//! `xsched man`.

use crate::cli;
use crate::failure::{Failure, Result, print};

/// Prints the manual page: the overview, then every subcommand.
pub(crate) fn main() -> Result {
    let mut out = Vec::new();
    let mut command = cli::command();
    command.build();
    let failed = |e: std::io::Error| Failure::environment(format!("cannot make the manual page: {e}"));
    clap_mangen::Man::new(command.clone()).render(&mut out).map_err(failed)?;
    for sub in command.get_subcommands().filter(|s| !s.is_hide_set()) {
        let man = clap_mangen::Man::new(sub.clone());
        let title = format!(".SH \"XSCHED {}\"\n", sub.get_name().to_uppercase());
        out.extend_from_slice(title.as_bytes());
        if let Some(about) = sub.get_long_about().or(sub.get_about()) {
            out.extend_from_slice(format!("{about}\n.PP\n").as_bytes());
        }
        man.render_synopsis_section(&mut out).map_err(failed)?;
        man.render_options_section(&mut out).map_err(failed)?;
        if sub.get_after_help().is_some() {
            man.render_extra_section(&mut out).map_err(failed)?;
        }
    }
    let text = String::from_utf8(out).map_err(|e| Failure::environment(format!("cannot make the manual page: {e}")))?;
    print(&text)
}
