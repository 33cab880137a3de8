//! Twenty random kills, stops and ends of programs and daemon. `cargo run -p xsched-e2e --example kills` runs more.

use xsched_e2e::kills::{Promise, random_kills};

#[test]
fn twenty_kills_leave_nothing_and_hold_up_nothing() {
    let report = random_kills(1, 20, "hpf");
    for promise in Promise::ALL {
        let took = report.took(promise);
        println!("{promise:?}: {took:?}");
        assert!(took.iter().any(|took| *took < promise.within()), "{promise:?}: not once: {took:?}");
    }
}
