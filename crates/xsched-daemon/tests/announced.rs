//! Programs that are announced before they attach, and admission to pools. The announcing process is the test itself, which is also the
//! client.

mod support;

use std::sync::atomic::Ordering::SeqCst;

use support::{Daemon, receive};
use xsched_proto::Error;
use xsched_proto::wire::{ClientMsg, DaemonMsg, Levels, Platform, Request, Share, Sharing};
use xsched_testkit::until;

fn announce(daemon: &Daemon, job: &str) -> Result<(), Error> {
    daemon.ask(Request::Announce { job: job.into(), program: "p".into() }).map(drop)
}

/// Reason for which a process of a priority is in no pool.
fn why(daemon: &Daemon, priority: Option<i32>, insists: bool) -> Option<String> {
    let request = Request::JoinPool { job: Some("j".into()), priority, insists, obstacle: None };
    match daemon.ask(request).unwrap().remove(0) {
        DaemonMsg::ByTime { why } => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn how_a_program_shares_is_what_its_contexts_do() {
    let daemon = Daemon::start();
    let client = daemon.attach(0);
    let share = || daemon.ps().1[0].share;
    client.group(0, "sim:0");
    assert_eq!(share(), None, "there is but one way");
    let cuda = |slot, sharing| {
        client.say(&ClientMsg::GroupAdd {
            slot,
            device: "pci:0000:41:00.0".into(),
            platform: Platform::Cuda,
            priority_steps: 0,
            priority_fixed: None,
            system: false,
            levels: Levels::ONE,
            sharing,
        });
        assert!(matches!(receive(&client.socket), Some((DaemonMsg::GroupAdded { .. }, _))));
        client.say(&ClientMsg::GroupRemove { slot: slot - 1 });
    };
    for (slot, sharing, shown) in
        [(1, Sharing::Time, Share::Time), (2, Sharing::Pool, Share::Pool), (3, Sharing::Spatial(7), Share::Spatial)]
    {
        cuda(slot, sharing);
        until("the other group is gone", || daemon.ps().1[0].groups.len() == 1);
        assert_eq!(share(), Some(shown));
    }
}

#[test]
fn who_is_in_no_pool_is_told_why_once() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().to_owned();
    let start = || Daemon::start_with(|o| o.state = Some(state.clone()));
    let daemon = start();
    assert_eq!(why(&daemon, Some(128), false), None, "nothing strange");
    assert_eq!(why(&daemon, Some(128), true).as_deref(), Some("libxsched.so is not beside the daemon's program"));
    let daemon = start();
    assert_eq!(why(&daemon, None, false).as_deref(), Some("libxsched.so is not beside the daemon's program"));
    assert_eq!(why(&daemon, None, false), None, "it was told");
    daemon.ask(Request::PolicySet { name: "up".into(), params: Vec::new(), device: None }).unwrap();
    assert_eq!(why(&daemon, None, false).as_deref(), Some("under the policy up programs take turns"));
    daemon.ask(Request::PolicySet { name: "hpf".into(), params: Vec::new(), device: None }).unwrap();
    let request = |obstacle: &str| Request::JoinPool {
        job: None,
        priority: None,
        insists: true,
        obstacle: Some(obstacle.to_owned()),
    };
    let told = daemon.ask(request("a profiler needs a context of its own")).unwrap();
    assert_eq!(told, [DaemonMsg::ByTime { why: Some("a profiler needs a context of its own".into()) }]);
    assert_eq!(daemon.ask(request("a\nb")).unwrap_err().exit_code(), 2);
}

#[test]
fn a_program_with_long_kernels_is_kept_out_of_pools_from_its_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().to_owned();
    let daemon = Daemon::start_with(|o| o.state = Some(state.clone()));
    announce(&daemon, "j").unwrap();
    let run = |longest_us| {
        let client = daemon.attach(0);
        client.say(&ClientMsg::GroupAdd {
            slot: 0,
            device: "pci:0000:41:00.0".into(),
            platform: Platform::Cuda,
            priority_steps: 0,
            priority_fixed: None,
            system: false,
            levels: Levels::ONE,
            sharing: Sharing::Pool,
        });
        assert!(matches!(receive(&client.socket), Some((DaemonMsg::GroupAdded { .. }, _))));
        client.words(0).longest_us.store(longest_us, SeqCst);
        assert_eq!(daemon.ps().1[0].groups[0].longest_us, longest_us);
    };
    run(9_900);
    let without = why(&daemon, None, false).unwrap();
    assert!(without.contains("libxsched.so"), "short enough: {without}");
    run(12_300);
    until("it is noted", || state.join("unsuitable.toml").exists());
    let line = "this program ran kernels of 12.3 ms in a pool, which others wait for";
    assert_eq!(why(&daemon, None, false).as_deref(), Some(line));
    drop(daemon);
    // The next daemon has the announcement, too.
    let daemon = Daemon::start_with(|o| o.state = Some(state.clone()));
    announce(&daemon, "j").unwrap();
    assert_eq!(why(&daemon, None, false).as_deref(), Some(line));
    assert_eq!(why(&daemon, None, true), Some(without), "who insists may be in one");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let daemon = Daemon::start();
    assert_eq!(announce(&daemon, "a\nb").unwrap_err().exit_code(), 2);
    let fault = daemon.ask(Request::PoolServer { pool: 1, fault: None }).unwrap_err();
    assert_eq!(fault, Error::environment("there is no such pool"));
}
