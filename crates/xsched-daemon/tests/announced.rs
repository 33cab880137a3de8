//! Programs that are announced before they attach, and what the daemon lets them share. The announcing process is the
//! test itself, which is also the client.

mod support;

use support::{Daemon, receive};
use xsched_proto::wire::{ClientMsg, DaemonMsg, MpsWish, Platform, Refusal, Request, Share};

fn announce(daemon: &Daemon, job: &str, mps: Option<MpsWish>) -> Result<Option<String>, (Refusal, String)> {
    let answer = daemon.ask(Request::Announce { job: job.into(), mps })?;
    Ok(answer.into_iter().find_map(|part| match part {
        DaemonMsg::Mps { pipe } => Some(pipe),
        _ => None,
    }))
}

fn running(pipe: &str, if_all: bool) -> Option<MpsWish> {
    Some(MpsWish { running: Some(pipe.into()), start: false, if_all })
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
        levels: 1,
    });
    assert!(matches!(receive(&client.socket), Some((DaemonMsg::GroupAdded { slot: 1, .. }, _))));
    assert_eq!(announce(&daemon, "j", running("/a", true)), Ok(None), "the client shares by time");
    assert_eq!(announce(&daemon, "j", running("/a", false)), Ok(Some("/a".into())), "asked for all the same");
    assert_eq!(announce(&daemon, "j", running("/b", true)), Ok(None), "the client is in another MPS");
    assert_eq!(announce(&daemon, "j", running("/a", false)), Ok(Some("/a".into())));
    assert_eq!(announce(&daemon, "j", running("/a", true)), Ok(Some("/a".into())));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let daemon = Daemon::start();
    assert_eq!(announce(&daemon, "a\nb", None).unwrap_err().0, Refusal::BadRequest);
    let nothing = MpsWish { running: None, start: false, if_all: false };
    let (kind, line) = announce(&daemon, "j", Some(nothing)).unwrap_err();
    assert_eq!((kind, line.as_str()), (Refusal::Environment, "no MPS daemon runs"));
}
