//! A policy per device.

use crate::world::{World, choice, spec};
use crate::{GroupSpec, part};

#[test]
fn policies_of_one_device_leave_the_others_untouched() {
    let mut w = World::new("hpf");
    for device in 0..2 {
        for (at, priority) in [(2, 128), (1, 0)] {
            let id = 10 * device + at;
            w.add_ready(GroupSpec { priority, device: format!("d{device}"), ..part(id, 50) }, 100);
        }
    }
    w.run(1_001_000);
    assert_eq!((w.used(1), w.used(11)), (0.0, 0.0));
    w.choose_for(Some("d1"), choice("up"));
    let suspensions = w.arbiter.status(w.now, xsched_policy::GroupId(1)).unwrap().suspensions;
    w.run(2_001_000);
    assert_eq!(w.used(1), 0.0, "hpf as before");
    assert_eq!(w.arbiter.status(w.now, xsched_policy::GroupId(1)).unwrap().suspensions, suspensions);
    assert!((w.used(11) - 500_000.0).abs() < 10_000.0, "{}", w.used(11));
    assert_eq!(w.arbiter.policy_of("d1").entry.name, "up");
    assert_eq!(w.arbiter.policy_of("d0").entry.name, "hpf");
    assert!(w.arbiter.shares_time("d1") && !w.arbiter.shares_time("d0"));
    // A device that is not there yet has what was chosen for it.
    w.choose_for(Some("d2"), choice("kedf k=2"));
    (20..23).for_each(|id| w.add_ready(spec(id, "d2"), 0));
    assert_eq!(w.open().iter().filter(|id| **id >= 20).count(), 2);
    assert_eq!(w.arbiter.policies().map(|(device, _)| device).collect::<Vec<_>>(), ["d1", "d2"]);
    // A policy for all devices replaces those of single ones.
    w.choose(choice("hpf"));
    w.run(3_001_000);
    assert_eq!(w.open(), [2, 12, 20, 21, 22]);
    assert_eq!(w.arbiter.policies().count(), 0);
}
