//! Checks of `doctor` besides devices: the configuration, variables, and a second daemon.

mod common;
use std::os::unix::process::CommandExt;
use std::process::Command;

use common::{Place, Said, said, until};

/// Status and finding of a check.
#[track_caller]
fn check(doctor: &Said, name: &str) -> (String, String) {
    let v: serde_json::Value = serde_json::from_str(&doctor.out).unwrap_or_else(|e| panic!("{e}: {doctor:?}"));
    let found = v["checks"].as_array().unwrap().iter().find(|check| check["name"] == name);
    let text = |field: &str| found.map_or("", |check| check[field].as_str().unwrap_or_default()).to_owned();
    (text("status"), text("found"))
}

fn doctor(place: &Place) -> Command {
    common::library();
    place.xsched(&["doctor", "--json"])
}

#[test]
fn a_fault_of_the_configuration_is_told_with_its_line() {
    let place = Place::new();
    assert_eq!(check(&said(doctor(&place)), "configuration").0, "ok");
    let file = place.join("xsched/config.toml");
    std::fs::create_dir(file.parent().unwrap()).unwrap();
    let with = |text: &str| {
        std::fs::write(&file, text).unwrap();
        said(doctor(&place))
    };
    let bad = with("policy = \"hpf\"\nplicy = 1\n");
    let (status, found) = check(&bad, "configuration");
    assert_eq!((bad.code, &*status), (Some(3), "fail"), "{bad:?}");
    assert!(
        found.starts_with(&format!(
            "{}:2: unknown key `plicy` of the top level: did you mean `policy`?",
            file.display()
        )),
        "{found}"
    );
    let (status, found) = check(&with("[[rule]]\nexe = \"a\"\n"), "configuration");
    assert!(status == "note" && found.contains("config.toml:1: this rule gives nothing"), "{found}");
    let (status, found) = check(&with("policy = \"hpf\"\n"), "configuration");
    assert!(status == "ok" && found.contains(&file.display().to_string()), "{found}");
}

#[test]
fn a_note_is_an_error_with_strict() {
    let place = Place::new();
    let with = |name: &str, value: &str, more: &[&str]| {
        let mut command = doctor(&place);
        command.env(name, value).args(more);
        said(command)
    };
    let noted = with("XSCHED_DISABEL", "1", &[]);
    let (status, found) = check(&noted, "environment");
    assert_eq!((noted.code, &*status), (Some(0), "note"), "{noted:?}");
    assert!(found.contains("XSCHED_DISABEL is no variable of xsched: did you mean XSCHED_DISABLE?"), "{found}");
    assert_eq!(with("XSCHED_DISABEL", "1", &["--strict"]).code, Some(3));
    let failed = with("XSCHED_PLATFORMS", "opncl", &[]);
    assert_eq!((failed.code, &*check(&failed, "environment").0), (Some(3), "fail"), "{failed:?}");
}

#[test]
fn a_second_daemon_of_the_same_user_is_found() {
    let place = Place::new();
    let other = place.join("xsched/xsched.sock");
    std::fs::create_dir(other.parent().unwrap()).unwrap();
    assert_eq!(check(&said(doctor(&place)), "daemons").0, "");
    // Another shell would start it so, with the same runtime folder and without XSCHED_SOCKET.
    let mut daemon = place.xsched(&["daemon", "--socket", other.to_str().unwrap()]).spawn().unwrap();
    until("it answers", || said(place.xsched(&["ps", "--socket", other.to_str().unwrap()])).code == Some(0));
    let two = said(doctor(&place));
    let (status, found) = check(&two, "daemons");
    assert_eq!((two.code, &*status), (Some(0), "note"), "{two:?}");
    assert!(found.contains(&format!("another one answers at {}", other.display())), "{found}");
    let mut same = doctor(&place);
    same.env_remove("XSCHED_SOCKET").args(["--socket", other.to_str().unwrap()]);
    assert_eq!(check(&said(same), "daemons").0, "", "it is the one that is asked");
    daemon.kill().unwrap();
    daemon.wait().unwrap();
}

#[test]
fn a_part_of_the_daemon_that_does_not_work_is_told_by_status_and_doctor() {
    let place = Place::new();
    let taken = place.join("metrics.sock");
    let _other = std::os::unix::net::UnixListener::bind(&taken).unwrap();
    let file = place.join("xsched/config.toml");
    std::fs::create_dir(file.parent().unwrap()).unwrap();
    std::fs::write(&file, format!("[metrics]\nlisten = \"unix:{}\"\n", taken.display())).unwrap();
    let mut daemon = place.xsched(&["daemon"]).spawn().unwrap();
    until("it answers", || said(place.xsched(&["ps"])).code == Some(0));
    let why = format!("metrics: cannot listen at {}: ", taken.display());
    let status = said(place.xsched(&["daemon", "status"])).out;
    assert!(status.lines().any(|line| line.starts_with(&format!("warning        {why}"))), "{status}");
    let doctor = said(doctor(&place)).out;
    let v: serde_json::Value = serde_json::from_str(&doctor).unwrap();
    let noted = v["checks"].as_array().unwrap().iter().find(|check| check["cause"] == "part-failed");
    let found = noted.and_then(|check| check["found"].as_str()).unwrap_or_default();
    assert!(found.starts_with(&why), "{doctor}");
    daemon.kill().unwrap();
    daemon.wait().unwrap();
}

#[test]
fn a_library_that_is_preloaded_before_ours_is_found_in_a_program() {
    let place = Place::new();
    let source = "int clEnqueueNDRangeKernel(void) { return 0; }";
    let wrapper = place.compile("libwrap.so", source, &["-shared", "-fPIC"]);
    let harmless = place.compile("libother.so", "int other(void) { return 0; }", &["-shared", "-fPIC"]);
    let sleeper = |before: &std::path::Path| {
        let mut command = place.command("sleep".as_ref(), &["600"]);
        command.env("LD_PRELOAD", format!("{} {}", before.display(), common::library().display()));
        // In a process group of its own, so that only this test ends it.
        command.process_group(0).spawn().unwrap()
    };
    for (before, is_shadow) in [(&wrapper, true), (&harmless, false)] {
        let mut program = sleeper(before);
        let asked = || said(place.xsched(&["doctor", "--json", "--pid", &program.id().to_string()]));
        until("it has its libraries", || check(&asked(), "library").1.contains(" is loaded"));
        let (status, found) = check(&asked(), "library");
        let told = format!("{} stands before it and answers clEnqueueNDRangeKernel", before.display());
        assert_eq!((&*status == "fail", found.contains(&told)), (is_shadow, is_shadow), "{found}");
        program.kill().unwrap();
        program.wait().unwrap();
    }
}

#[test]
fn what_else_arbitrates_is_found() {
    let place = Place::new();
    let found = |doctor: &Said, cause: &str| {
        let v: serde_json::Value = serde_json::from_str(&doctor.out).unwrap();
        let found = v["checks"].as_array().unwrap().iter().filter(|check| check["cause"] == cause);
        found.map(|check| check["found"].as_str().unwrap().to_owned()).collect::<Vec<_>>().join("\n")
    };
    // The program has the name of XSched's own daemon.
    let original = place.join("xserver");
    common::copy_program("/bin/sleep".as_ref(), &original);
    let mut server = place.command(&original, &["600"]).spawn().unwrap();
    let line = format!("process {} is an xserver", server.id());
    until("it is found", || found(&said(doctor(&place)), "other-arbiter").contains(&line));
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(!found(&said(doctor(&place)), "other-arbiter").contains(&line));
    // A wrapper in this shell's environment counts only before the library, not behind it.
    let wrapper = place.compile("libwrap.so", "int cuLaunchKernel(void) { return 0; }", &["-shared", "-fPIC"]);
    let with = |list: String| {
        let mut command = doctor(&place);
        command.env("LD_PRELOAD", list);
        found(&said(command), "preloaded")
    };
    let shown = wrapper.display();
    assert_eq!(with(shown.to_string()), format!("LD_PRELOAD has {shown}, which answers cuLaunchKernel itself"));
    assert_eq!(with(format!("{}:{shown}", common::library().display())), "");
}
