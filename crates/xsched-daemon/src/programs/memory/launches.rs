//! Launches of a client, as read from its segment.

use xsched_engine::LaunchSum;
use xsched_proto::segment::GROUPS;

/// Numbers of launches on a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Launches {
    pub(crate) all: u64,
    /// Number of these launches that belong to the system domain.
    pub(crate) system: u64,
}

/// Launches of the queues of a program, by slot. The list is as long as the program said, so that it is asked for any slot and never
/// indexed.
#[derive(Debug)]
pub(crate) struct QueueLaunches(Vec<(Launches, bool)>);

impl QueueLaunches {
    /// No launches yet, in this many places.
    pub(super) fn of_places(places: usize) -> QueueLaunches {
        QueueLaunches(vec![(Launches::default(), false); places])
    }

    /// Adds launches of a queue. A queue beyond the places is left out.
    pub(super) fn add(&mut self, queue: usize, launches: Launches) {
        if let Some((sum, _)) = self.0.get_mut(queue) {
            sum.all = sum.all.wrapping_add(launches.all);
            sum.system = sum.system.wrapping_add(launches.system);
        }
    }

    /// Notes that a queue has a group, or has none.
    pub(super) fn note(&mut self, queue: usize, has_group: bool) {
        if let Some((_, noted)) = self.0.get_mut(queue) {
            *noted = has_group;
        }
    }

    /// Launches on the queue in a slot: none, if the program has not reported that the slot is used.
    pub(crate) fn of(&self, slot: u16) -> Launches {
        self.0.get(usize::from(slot)).map_or_else(Launches::default, |(launches, _)| *launches)
    }

    /// Launches on the queue in a slot; none, if the program has not reported a queue there, or is destroying it: its launches may then
    /// have been read as none.
    pub(crate) fn of_living(&self, slot: u16) -> Option<Launches> {
        self.0.get(usize::from(slot)).filter(|(_, has_group)| *has_group).map(|(launches, _)| *launches)
    }

    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.0.len()
    }
}

/// Launches of the groups of a program, by slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupLaunches([u64; GROUPS]);

impl GroupLaunches {
    /// Launches of a complete sum.
    pub(super) fn new(sum: &LaunchSum) -> GroupLaunches {
        GroupLaunches(sum.launches)
    }

    /// Launches of the groups in some slots.
    pub(crate) fn of(&self, slots: &[u16]) -> u64 {
        slots.iter().filter_map(|slot| self.0.get(usize::from(*slot))).fold(0, |sum, n| sum.wrapping_add(*n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_of_slots_beyond_the_places_are_none() {
        let mut queues = QueueLaunches::of_places(2);
        let three = Launches { all: 3, system: 1 };
        [1, 1, 2, usize::MAX].into_iter().for_each(|queue| queues.add(queue, three));
        [1, 2].into_iter().for_each(|queue| queues.note(queue, true));
        assert_eq!([0, 1, 2, u16::MAX].map(|slot| queues.of(slot).all), [0, 6, 0, 0]);
        assert_eq!([0, 1, 2, u16::MAX].map(|slot| queues.of_living(slot).is_some()), [false, true, false, false]);
        let groups = GroupLaunches::new(&LaunchSum { launches: [5; GROUPS], ..LaunchSum::default() });
        assert_eq!(groups.of(&[0, GROUPS as u16 - 1, GROUPS as u16, u16::MAX]), 10);
    }
}
