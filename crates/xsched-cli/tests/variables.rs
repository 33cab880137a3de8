//! Lines of `run` about variables that it does not know.

mod common;
use std::process::Command;

use common::{Place, said};

/// Runs a command that prints a variable.
fn showing(place: &Place, shown: &str, options: &[&str]) -> Command {
    let library = place.join("stand-in.so");
    if !library.exists() {
        place.stand_in("stand-in.so");
    }
    let mut command = place.xsched(&["run", "--local", "hpf"]);
    command.args(options).args(["--", "sh", "-c", &format!("echo ${{{shown}-none}}")]).env("XSCHED_PRELOAD", library);
    command
}

#[test]
fn a_misspelt_name_is_told_once_for_all_that_is_started() {
    let place = Place::new();
    let with = |told: &str| {
        let mut command = showing(&place, "XSCHED_TOLD_OF", &[]);
        command.env("XSCHED_DISABEL", "1").env("XSCHED_TOLD_OF", told);
        said(command)
    };
    let first = with("");
    first.one_line(0, "XSCHED_DISABEL is no variable of xsched: did you mean XSCHED_DISABLE?");
    assert_eq!(first.out, "XSCHED_DISABEL\n");
    with("XSCHED_DISABEL").quiet(0);
    let mut original = showing(&place, "XSCHED_TOLD_OF", &[]);
    original.env("XSCHED_HIP_LIB", "/opt/libamdhip64.so");
    let told = said(original);
    told.one_line(0, "XSCHED_HIP_LIB has no effect");
    assert_eq!(told.out, "XSCHED_HIP_LIB\n");
    assert_eq!(said(showing(&place, "XSCHED_TOLD_OF", &[])).out, "none\n");
}

#[test]
fn a_value_that_is_not_accepted_is_bad_input() {
    let place = Place::new();
    for (name, value, accepted) in [
        ("XSCHED_PLATFORMS", "opncl", "there is no platform opncl; use cuda, hip, opencl, sim, hsa"),
        ("XSCHED_LOG", "loud", "XSCHED_LOG=loud: use off, error, info or debug"),
        ("XSCHED_PRIORITY", "lwo", "XSCHED_PRIORITY: 'lwo' is no priority"),
        ("XSCHED_REQUIRE", "maybe", "XSCHED_REQUIRE=maybe: use 1 or 0"),
        ("XSCHED_DOMAINS", "all", "XSCHED_DOMAINS=all: use off, report, ahead or exempt"),
    ] {
        let mut command = showing(&place, name, &[]);
        command.env(name, value);
        said(command).one_line(2, accepted);
    }
}

#[test]
fn an_option_goes_before_the_variable() {
    let place = Place::new();
    let with = |shown: &str, options: &[&str]| {
        let mut command = showing(&place, shown, options);
        command.env("XSCHED_PRIORITY", "low");
        let said = said(command);
        said.quiet(0);
        said.out
    };
    assert_eq!(with("XSCHED_PRIORITY", &[]), "low\n");
    assert_eq!(with("XSCHED_PRIORITY", &["--priority", "high"]), "none\n");
    assert_eq!(with("XSCHED_AUTO_XQUEUE_PRIORITY", &["--priority", "high"]), "128\n");
}
