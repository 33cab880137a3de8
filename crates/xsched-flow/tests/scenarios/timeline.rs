//! Scenarios of [`xsched_flow::timeline`].

use crate::shared::{Do, World};
use crate::{MS, Rule, US, earns};

#[test]
fn unfenced_commands_of_a_draining_group_do_not_count_as_on_the_device() {
    earns(Rule::Overdue, |off| {
        // A fence follows each third of these commands: mostly one or two unfenced ones are left when the gate closes.
        let mut world = World::new(off, "up");
        let plan = [Do::Launch(0, 20 * US)];
        let (heavy, light) = (world.add(0, 75, &[&plan]), world.add(0, 25, &[&plan]));
        world.run(300 * MS);
        // 21 % of the work, because each grant of the lighter program costs it one more of the heavier one's commands; 1 % without the
        // rule.
        world.part(light) > 0.20 && world.part(heavy) > 0.7
    });
}

#[test]
fn silence_a_stream_used_once_does_not_stay_busy_for_ever() {
    earns(Rule::Silence, |off| {
        // The queue was used before the rival came, and no call waited for it: nothing on it is fenced.
        let mut world = World::new(off, "hpf");
        let once = Do::Once(&Do::Launch(1, 20 * US));
        world.add(128, 100, &[&[once, Do::Each(10 * MS), Do::Launch(0, MS), Do::Sync(0), Do::End]]);
        world.run(50 * MS);
        let rival = world.add(-128, 100, &[&[Do::Launch(0, 100 * US)]]);
        world.run(1_000 * MS);
        world.part(rival) > 0.6
    });
}
