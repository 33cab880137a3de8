//! A program is killed or stopped while it has the device or is held: others must go on, and nothing of it may stay.

use std::time::Duration;

use rustix::process::Signal;
use xsched_e2e::{Place, Process, least_of, now_ns, signal, until};

/// Longest time until another program has done a batch (two of 12.8 ms are under way), once the one with the device is gone, stopped or
/// back: a hang-up is seen at once, a lack of progress after 20 ms. The rest allows for processes to wake up on a busy machine.
const GOES_ON: Duration = Duration::from_millis(75);
/// Longest time until the next batch of a program that nothing delays.
const LONGEST_GAP: Duration = Duration::from_millis(300);
/// Tries at these times, see [`least_of`].
const TRIES: u32 = 5;

fn end(mut program: Process) {
    program.tell("end");
    assert_eq!(program.finish().last().map(String::as_str), Some("ok"));
}

#[test]
fn the_other_goes_on_when_the_one_with_the_device_is_killed() {
    let place = Place::new();
    let _daemon = place.daemon(&["--policy", "hpf"]);
    least_of(TRIES, GOES_ON, "high killed: low's next batch was done after", || {
        let (mut low, high) = place.low_held_by_high();
        let when = now_ns();
        signal(high.pid(), Signal::KILL);
        let after = low.progress_after(when);
        let gone = high.pid();
        assert_eq!(high.wait().0, -9);
        until("nothing of it is shown", || place.program(gone).is_none());
        end(low);
        until("nothing is shown", || place.ps().unwrap()["programs"].as_array().unwrap().is_empty());
        after
    });
}

#[test]
fn the_other_goes_on_when_the_one_with_the_device_is_stopped() {
    let place = Place::new();
    let _daemon = place.daemon(&["--policy", "hpf"]);
    let (mut low, mut high) = place.low_held_by_high();
    least_of(
        TRIES,
        GOES_ON,
        "high stopped, then continued: the longer time until a batch of the other was done",
        || {
            let when = now_ns();
            signal(high.pid(), Signal::STOP);
            let after = low.progress_after(when);
            low.progress_after(now_ns() + 200_000_000);
            let when = now_ns();
            signal(high.pid(), Signal::CONT);
            let back = high.progress_after(when);
            place.await_state(low.pid(), "ready");
            low.skip_lines();
            high.skip_lines();
            after.max(back)
        },
    );
    end(high);
    end(low);
}

#[test]
fn a_held_program_that_is_stopped_or_killed_disturbs_nobody() {
    let place = Place::new();
    let _daemon = place.daemon(&["--policy", "hpf"]);
    let (low, mut high) = place.low_held_by_high();
    signal(low.pid(), Signal::STOP);
    least_of(TRIES, LONGEST_GAP, "the longest time without a batch, beside a program that is stopped", || {
        high.skip_lines();
        high.longest_gap(Duration::from_millis(500))
    });
    signal(low.pid(), Signal::KILL);
    let gone = low.pid();
    assert_eq!(low.wait().0, -9);
    until("nothing of it is shown", || place.program(gone).is_none());
    high.progress_after(now_ns());
    end(high);
}

#[test]
fn killing_and_stopping_over_and_over_leaves_nothing() {
    let place = Place::new();
    let _daemon = place.daemon(&["--policy", "chaos"]);
    let steady = place.sim_program("steady");
    let mut stays = place.run(&[], &steady, &[]);
    stays.expect("ready");
    for round in 0..12 {
        let mut other = place.run(&["--priority", "high"], &steady, &["100", "20"]);
        other.expect("ready");
        // Each round ends the program at another point of its life.
        std::thread::sleep(Duration::from_millis(round * 3));
        if round % 2 == 1 {
            signal(other.pid(), Signal::STOP);
        }
        signal(other.pid(), Signal::KILL);
        other.wait();
        stays.progress_after(now_ns());
    }
    until("only one is shown", || place.ps().unwrap()["programs"].as_array().unwrap().len() == 1);
    end(stays);
}
