//! `xsched completions`.

use clap_complete::env::Shells;

use crate::candidates::VARIABLE;
use crate::failure::{Error, Result, print};

/// Print a completion script for a shell
///
/// The script asks `xsched`, so that it offers the programs, jobs and devices of this machine.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  xsched completions bash > ~/.local/share/bash-completion/completions/xsched
  xsched completions zsh  > ~/.zfunc/_xsched        in a folder of $fpath
  xsched completions fish > ~/.config/fish/completions/xsched.fish")]
pub(crate) struct Args {
    /// Shell that the script is for
    #[arg(value_name = "SHELL")]
    shell: clap_complete::Shell,
}

/// Prints the script.
pub(crate) fn main(args: Args) -> Result {
    print(&script(args.shell)?)
}

fn script(shell: clap_complete::Shell) -> Result<String> {
    let fail = |why: &dyn std::fmt::Display| Error::environment(format!("cannot make the script: {why}"));
    let shells = Shells::builtins();
    let adapter = shells.completer(&shell.to_string()).ok_or_else(|| fail(&format!("{shell} is not known")))?;
    let mut out = Vec::new();
    adapter.write_registration(VARIABLE, "xsched", "xsched", "xsched", &mut out).map_err(|e| fail(&e))?;
    let text = String::from_utf8(out).map_err(|e| fail(&e))?;
    // A file of $fpath is run for the first completion, and has to answer that one itself.
    let registered = "compdef _clap_dynamic_completer_xsched xsched";
    let loaded = format!(
        "if [[ $funcstack[1] == _xsched ]]; then\n    _clap_dynamic_completer_xsched \"$@\"\nelse\n    {registered}\nfi"
    );
    Ok(text.replace(registered, &loaded))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_shell_has_a_script_that_asks_the_command() {
        for shell in clap_complete::Shell::value_variants() {
            let text = script(*shell).unwrap();
            assert!(text.contains(VARIABLE) && text.contains("xsched"), "{shell}: {text}");
        }
        assert!(script(clap_complete::Shell::Zsh).unwrap().contains("$funcstack[1] == _xsched"));
    }
}
