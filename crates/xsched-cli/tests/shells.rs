//! Completions in real shells, and manual pages as `man` renders them.

mod common;

use std::path::Path;
use std::process::Command;

use common::{Place, said};

/// Runs a script in a shell that has `xsched` in its path, and uses the test's daemon.
fn shell(place: &Place, program: &str, script: &str) -> Vec<String> {
    let mut command = place.command(Path::new(program), &[]);
    let beside = Path::new(env!("CARGO_BIN_EXE_xsched")).parent().unwrap().to_owned();
    let path = std::env::join_paths([beside, "/usr/bin".into(), "/bin".into()]).unwrap();
    command.env("PATH", path).args(["-c", script]);
    let done = said(command);
    assert_eq!(done.code, Some(0), "{done:?}");
    done.out.lines().map(str::to_owned).collect()
}

fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Words typed, words that must be offered, and words that must not be.
const TYPED: &[(&[&str], &[&str], &[&str])] = &[
    (&["run", "--priority", ""], &["high", "low", "realtime"], &["--weight"]),
    (&["ps", "--class", "h"], &["high"], &["low"]),
    (&["policy", "set", "k"], &["kedf"], &["hpf"]),
    (&["run", "--re"], &["--require"], &["--priority"]),
    (&["su"], &["suspend"], &["resume"]),
    (&["run", "--", "python3", "--"], &[], &["--priority", "--require"]),
    (&["run", "--", "--"], &[], &["--priority", "--require"]),
];

fn check(offered: impl Fn(&[&str]) -> Vec<String>) {
    for (typed, wanted, unwanted) in TYPED {
        let offered = offered(typed);
        for word in *wanted {
            assert!(offered.iter().any(|o| o == word), "{typed:?}: no {word} in {offered:?}");
        }
        for word in *unwanted {
            assert!(!offered.iter().any(|o| o == word), "{typed:?}: {word} in {offered:?}");
        }
    }
}

#[test]
fn bash_offers_commands_classes_and_policies_and_options_before_the_program_only() {
    let place = Place::new();
    check(|typed| {
        let script = format!(
            "eval \"$(xsched completions bash)\"\n\
             COMP_WORDS=(xsched {}); COMP_CWORD={}; COMP_TYPE=9\n\
             _clap_complete_xsched xsched \"${{COMP_WORDS[COMP_CWORD]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            typed.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "),
            typed.len()
        );
        shell(&place, "bash", &script)
    });
}

#[test]
fn zsh_offers_the_same_by_a_file_of_fpath() {
    if !is_installed("zsh") {
        return xsched_testkit::skipped("completions in zsh: needs zsh");
    }
    let place = Place::new();
    std::fs::write(place.join("_xsched"), said(place.xsched(&["completions", "zsh"])).out).unwrap();
    check(|typed| {
        let words: Vec<String> = typed.iter().map(|word| format!("'{word}'")).collect();
        let script = format!(
            "fpath=({} $fpath); autoload -Uz _xsched\n\
             compdef() {{ }}\n_describe() {{ print -l -- ${{(P)3}} }}\n\
             words=(xsched {}); CURRENT={}; _xsched",
            place.path().display(),
            words.join(" "),
            typed.len() + 1
        );
        // zsh gets a description after each colon.
        let offered = shell(&place, "zsh", &script).into_iter();
        offered.map(|line| line.split(':').next().unwrap_or_default().to_owned()).collect()
    });
}

#[test]
fn fish_offers_the_same() {
    if !is_installed("fish") {
        return xsched_testkit::skipped("completions in fish: needs fish");
    }
    let place = Place::new();
    check(|typed| {
        let script = format!("xsched completions fish | source; complete -C 'xsched {}'", typed.join(" "));
        let offered = shell(&place, "fish", &script).into_iter();
        offered.map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect()
    });
}

#[test]
fn man_renders_every_page_without_a_warning() {
    if !is_installed("man") || !is_installed("groff") {
        return xsched_testkit::skipped("manual pages: needs man-db and groff");
    }
    let place = Place::new();
    let folder = place.join("man");
    said(place.xsched(&["man", "--dir", folder.to_str().unwrap()])).quiet(0);
    let mut rendered = 0;
    for section in std::fs::read_dir(&folder).unwrap() {
        for page in std::fs::read_dir(section.unwrap().path()).unwrap() {
            let page = page.unwrap().path();
            let mut man = place.command(Path::new("man"), &["--warnings", "-E", "UTF-8", "-l"]);
            let done = said({
                man.arg(&page).env("MANWIDTH", "80").env("LC_ALL", "C.UTF-8");
                man
            });
            assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{}", page.display());
            for word in ["NAME", "DESCRIPTION", "FILES", "SEE ALSO"] {
                assert!(done.out.contains(word), "{}: no {word}", page.display());
            }
            rendered += 1;
        }
    }
    assert!(rendered > 15, "only {rendered} pages");
    said(place.xsched(&["man", "pss"])).one_line(2, "did you mean ps?");
    assert!(said(place.xsched(&["man", "xsched.toml"])).out.contains(".TH XSCHED.TOML 5"));
}
