//! Programs that are announced before they attach, and what the daemon lets them share. The announcing process is the
//! test itself, which is also the client.

mod support;

use std::sync::atomic::Ordering::SeqCst;

use support::{Daemon, receive};
use xsched_proto::Error;
use xsched_proto::wire::{ClientMsg, DaemonMsg, Levels, MpsWish, Platform, Request, Share};
use xsched_testkit::until;

fn announce(daemon: &Daemon, job: &str, mps: Option<MpsWish>) -> Result<Option<String>, Error> {
    let answer = daemon.ask(Request::Announce { job: job.into(), program: "p".into(), mps })?;
    Ok(answer.into_iter().find_map(|part| match part {
        DaemonMsg::Mps { pipe, .. } => Some(pipe),
        _ => None,
    }))
}

fn running(pipe: &str, if_pays: bool) -> Option<MpsWish> {
    Some(MpsWish { running: Some(pipe.into()), start: false, if_pays })
}

#[test]
fn how_a_program_shares_is_known_once_it_is_announced() {
    let daemon = Daemon::start();
    let _client = daemon.attach(0);
    let share = || daemon.ps().1[0].share;
    assert_eq!(share(), None);
    assert_eq!(announce(&daemon, "j", None), Ok(None));
    assert_eq!(share(), Some(Share::Time));
    assert_eq!(announce(&daemon, "j", running("/pipe", false)), Ok(Some("/pipe".into())));
    assert_eq!(share(), Some(Share::Spatial), "what was said last counts");
}

#[test]
fn mps_is_chosen_only_if_all_programs_on_a_gpu_come_by_the_same() {
    let daemon = Daemon::start();
    assert_eq!(announce(&daemon, "j", running("/a", true)), Ok(Some("/a".into())), "nobody is on a GPU");
    assert_eq!(announce(&daemon, "j", None), Ok(None));
    let client = daemon.attach(0);
    client.group(0, "sim:0");
    assert_eq!(announce(&daemon, "j", running("/a", true)), Ok(Some("/a".into())), "this is no GPU of NVIDIA's");
    assert_eq!(announce(&daemon, "j", None), Ok(None));
    client.say(&ClientMsg::GroupAdd {
        slot: 1,
        device: "pci:0000:41:00.0".into(),
        platform: Platform::Cuda,
        priority_steps: 0,
        priority_fixed: None,
        system: false,
        levels: Levels::ONE,
        pool: None,
    });
    assert!(matches!(receive(&client.socket), Some((DaemonMsg::GroupAdded { slot: 1, .. }, _))));
    assert_eq!(announce(&daemon, "j", running("/a", true)), Ok(None), "the client shares by time");
    assert_eq!(announce(&daemon, "j", running("/a", false)), Ok(Some("/a".into())), "asked for all the same");
    assert_eq!(announce(&daemon, "j", running("/b", true)), Ok(None), "the client is in another MPS");
    assert_eq!(announce(&daemon, "j", running("/a", false)), Ok(Some("/a".into())));
    assert_eq!(announce(&daemon, "j", running("/a", true)), Ok(Some("/a".into())));
}

#[test]
fn a_program_with_long_kernels_is_kept_to_time_sharing_from_its_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().to_owned();
    let ask = |daemon: &Daemon, if_pays| {
        let wish = running("/a", if_pays);
        daemon.ask(Request::Announce { job: "j".into(), program: "p".into(), mps: wish }).unwrap().remove(0)
    };
    let daemon = Daemon::start_with(|o| o.state = Some(state.clone()));
    let none = DaemonMsg::Mps { pipe: "/a".into(), warning: None };
    assert_eq!(ask(&daemon, true), none);
    let client = daemon.attach(0);
    client.group(0, "pci:0000:41:00.0");
    client.words(0).longest_us.store(1_900, SeqCst);
    assert_eq!(daemon.ps().1[0].groups[0].longest_us, 1_900);
    drop(client);
    assert_eq!(ask(&daemon, true), none, "short enough");
    let client = daemon.attach(0);
    client.group(0, "pci:0000:41:00.0");
    client.words(0).longest_us.store(12_300, SeqCst);
    drop(client);
    until("it is noted", || state.join("long-kernels.toml").exists());
    let line = "this program ran kernels of 12.3 ms under MPS, which hold up all others";
    assert_eq!(ask(&daemon, true), DaemonMsg::ByTime { why: line.into() });
    drop(daemon);
    // The next daemon knows it too. A program that insists gets it, with a line.
    let daemon = Daemon::start_with(|o| o.state = Some(state.clone()));
    assert_eq!(ask(&daemon, true), DaemonMsg::ByTime { why: line.into() });
    assert_eq!(ask(&daemon, false), DaemonMsg::Mps { pipe: "/a".into(), warning: Some(line.into()) });
}

#[test]
fn what_makes_no_sense_is_refused() {
    let daemon = Daemon::start();
    assert_eq!(announce(&daemon, "a\nb", None).unwrap_err().exit_code(), 2);
    let nothing = MpsWish { running: None, start: false, if_pays: false };
    assert_eq!(announce(&daemon, "j", Some(nothing)).unwrap_err(), Error::environment("no MPS daemon runs"));
}
