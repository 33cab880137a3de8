//! Scenarios of [`xsched_flow::estimate`].

use crate::flat_out::FlatOut;
use crate::{MS, Rule, US, earns};

#[test]
fn outliers_time_away_from_the_device_does_not_shrink_what_is_in_flight() {
    earns(Rule::Outliers, |off| {
        let mut world = FlatOut::new(off).knows(7, 100 * US).with(|world| world.host_ns = 20 * US);
        (0..2_000).all(|number| {
            // During each 20th kernel, the device turns to other contexts for 4 ms.
            world.launch(7, 100 * US, if number % 20 == 0 { 4 * MS } else { 0 });
            world.expected(7).unwrap() < 200 * US
        })
    });
}

#[test]
fn pace_kernels_taken_for_too_short_are_found_out() {
    earns(Rule::Pace, |off| {
        // The kernel takes 160 µs; the estimate is 40 µs, from one sample beside a clock that ran faster.
        let mut world = FlatOut::new(off).knows(7, 40 * US);
        world.run(300 * MS, 160 * US);
        world.expected(7).unwrap() > 120 * US && world.drain_ns() <= MS
    });
}
