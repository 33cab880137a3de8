//! Placement: which program is on which devices. It is decided program by program, in the order of their begins, by what is known of each
//! before it runs: memory, class, expected load, begin and end.

use std::collections::BTreeSet;

use xsched_proto::class::Class;

use crate::scenario::{Scenario, Strategy};

/// A machine: devices that one daemon serves, and the programs on them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Machine {
    /// Kind of its devices.
    pub(crate) kind: usize,
    /// Number of its first device among all.
    pub(crate) first: usize,
    /// Number of its devices.
    pub(crate) devices: usize,
    /// Its programs.
    pub(crate) programs: Vec<Placed>,
}

/// A program on its devices.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Placed {
    /// Its kind.
    pub(crate) kind: usize,
    /// Its number within its kind.
    pub(crate) number: u32,
    /// Its devices, by their places in the machine.
    pub(crate) devices: Vec<usize>,
}

/// Machines with their programs, and those for which there was no room.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) machines: Vec<Machine>,
    /// Programs without a place, by kind.
    pub(crate) unplaced: Vec<u32>,
}

/// A program that has a place on a device.
#[derive(Clone, Copy, Debug)]
struct Tenant {
    begin_ns: u64,
    end_ns: u64,
    memory: f64,
    urgent: bool,
    /// Expected part of the device.
    load: f64,
}

/// A device, as far as placement knows it.
#[derive(Clone, Debug, Default)]
struct Room {
    tenants: Vec<Tenant>,
    memory: f64,
}

impl Room {
    /// Tenants that are there at some time of another.
    fn beside<'a>(&'a self, new: &'a Tenant) -> impl Iterator<Item = &'a Tenant> {
        self.tenants.iter().filter(|old| old.begin_ns < new.end_ns && new.begin_ns < old.end_ns)
    }

    fn fits(&self, new: &Tenant) -> bool {
        self.beside(new).map(|old| old.memory).sum::<f64>() + new.memory <= self.memory + 1e-9
    }

    /// Expected slow-down of all programs on the device by one more: an urgent one hurts what runs in the rest of its time, two urgent ones
    /// hurt each other most.
    fn harm(&self, new: &Tenant) -> f64 {
        let pair = |old: &Tenant| match (old.urgent, new.urgent) {
            (true, true) => 4.0 * old.load * new.load,
            (false, false) => old.load.min(new.load) + old.load * new.load,
            _ => old.load * new.load,
        };
        let all: f64 = self.beside(new).map(|old| old.load).sum::<f64>() + new.load;
        self.beside(new).map(pair).sum::<f64>() + (all - 1.0).max(0.0)
    }
}

/// Search for places of programs that are alike. What a place costs is known for each machine, and changes only where one is taken: time grows
/// with the number of devices and the number of programs, not with their product.
struct Search<'a> {
    machines: &'a [Machine],
    rooms: &'a mut [Room],
    strategy: Strategy,
    new: Tenant,
    /// Devices that each program needs.
    wanted: usize,
    /// Machines with room by what they cost, the cheapest first.
    ranked: BTreeSet<(u64, usize)>,
}

impl<'a> Search<'a> {
    fn new(machines: &'a [Machine], rooms: &'a mut [Room], strategy: Strategy, new: Tenant, wanted: usize) -> Search<'a> {
        for kind in order {
        let program = &scenario.programs[kind];
        let priority = program.priority().ok().flatten().unwrap_or(0);
        let tenant = Tenant {
            begin_ns: program.start.0,
            end_ns: program.end.unwrap_or(scenario.time).0,
            memory: program.memory,
            urgent: !Class::of(priority).is_best_effort(),
            load: load_of(scenario, kind),
        };
        if !program.device.is_empty() {
            for (number, device) in (0..program.count).zip(program.device.iter().cycle()) {
                let (device, at) = (*device as usize, machine_of[*device as usize]);
                rooms[device].tenants.push(tenant);
                chosen.push((at, Placed { kind, number, devices: vec![device - machines[at].first] }));
            }
            continue;
        }
        let mut search = Search::new(&machines, &mut rooms, strategy, tenant, program.devices as usize);
        for number in 0..program.count {
            match search.take() {
                Some((at, devices)) => chosen.push((at, Placed { kind, number, devices })),
                None => unplaced[kind] += 1,
            }
        }
    }
    for (at, placed) in chosen {
        machines[at].programs.push(placed);
    }
    Plan { machines, unplaced }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(text: &str) -> Scenario {
        Scenario::read(text, |_| unreachable!()).expect(text)
    }

    const CLUSTER: &str = "time = \"1s\"\n[[device]]\ncount = 4\nper_node = 2\nmemory = 10\n";

    fn program(name: &str, rest: &str) -> String {
        format!("[[program]]\nname = \"{name}\"\nkernels = [{{ time = \"1ms\" }}]\n{rest}\n")
    }

    /// Devices of each program, by kind and number.
    fn places(scenario: &Scenario, strategy: Strategy) -> Vec<(usize, u32, Vec<usize>)> {
        let plan = plan(scenario, strategy);
        let of = |machine: &Machine| {
            let first = machine.first;
            machine
                .programs
                .iter()
                .map(move |p| (p.kind, p.number, p.devices.iter().map(|d| d + first).collect()))
                .collect()
        };
        let mut all: Vec<_> =
            plan.machines.iter().flat_map(|machine| -> Vec<(usize, u32, Vec<usize>)> { of(machine) }).collect();
        all.sort();
        all
    }

    #[test]
    fn each_strategy_does_what_its_name_says() {
        let two = scenario(&format!("{CLUSTER}{}", program("a", "count = 3\nmemory = 4")));
        let devices = |strategy| -> Vec<usize> { places(&two, strategy).into_iter().flat_map(|(_, _, d)| d).collect() };
        assert_eq!(devices(Strategy::FirstFit), [0, 0, 1]);
        assert_eq!(devices(Strategy::Spread), [0, 1, 2]);
        let mixed = scenario(&format!(
            "{CLUSTER}{}{}",
            program("serve", "count = 4\nclass = \"high\"\narrivals = { every = \"2ms\" }"),
            program("train", "count = 4")
        ));
        let mut on: Vec<Vec<usize>> = vec![Vec::new(); 4];
        places(&mixed, Strategy::Interference).into_iter().for_each(|(kind, _, d)| on[d[0]].push(kind));
        assert_eq!(on, vec![vec![0, 1]; 4], "one of each on every device");
    }

    #[test]
    fn jobs_are_on_one_machine_and_without_room_there_is_no_place() {
        let jobs = scenario(&format!("{CLUSTER}{}", program("job", "count = 3\ndevices = 2\nmemory = 6")));
        let all = places(&jobs, Strategy::Gang);
        assert_eq!(all, [(0, 0, vec![0, 1]), (0, 1, vec![2, 3])]);
        assert_eq!(plan(&jobs, Strategy::Gang).unplaced, [1]);
        let later = scenario(&format!(
            "{CLUSTER}{}{}",
            program("first", "count = 4\nmemory = 10\nend = \"500ms\""),
            program("second", "count = 4\nmemory = 10\nstart = \"500ms\"")
        ));
        assert_eq!(plan(&later, Strategy::Spread).unplaced, [0, 0], "memory comes back");
    }
}
