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
    fn new(
        machines: &'a [Machine],
        rooms: &'a mut [Room],
        strategy: Strategy,
        new: Tenant,
        wanted: usize,
    ) -> Search<'a> {
        let mut search = Search { machines, rooms, strategy, new, wanted, ranked: BTreeSet::new() };
        (0..machines.len()).for_each(|machine| search.rank(machine));
        search
    }

    fn rank(&mut self, machine: usize) {
        if let Some((cost, _)) = self.best_of(machine) {
            self.ranked.insert(((cost * 1e6) as u64, machine));
        }
    }

    /// The devices of a machine that cost least, and their cost.
    fn best_of(&self, machine: usize) -> Option<(f64, Vec<usize>)> {
        let Machine { first, devices, .. } = self.machines[machine];
        let rooms = &self.rooms[first..first + devices];
        let neighbours = |room: &Room| room.beside(&self.new).count() as f64;
        let cost = |room: &Room| match self.strategy {
            Strategy::FirstFit => 0.0,
            Strategy::Spread | Strategy::Gang => neighbours(room),
            Strategy::Interference => room.harm(&self.new),
        };
        let fitting = rooms.iter().enumerate().filter(|(_, room)| room.fits(&self.new));
        let mut with_room: Vec<(f64, usize)> = fitting.map(|(at, room)| (cost(room), at)).collect();
        if with_room.len() < self.wanted {
            return None;
        }
        with_room.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        with_room.truncate(self.wanted);
        let mut cost: f64 = with_room.iter().map(|(cost, _)| cost).sum();
        if self.strategy == Strategy::Gang {
            // The fullest machine that still takes all: large holes are kept for large jobs.
            let free = rooms.iter().filter(|room| neighbours(room) == 0.0).count();
            cost = cost * 1_000.0 + free as f64;
        }
        Some((cost, with_room.into_iter().map(|(_, at)| at).collect()))
    }

    /// Takes the cheapest place: a machine and its devices. None: there is no room.
    fn take(&mut self) -> Option<(usize, Vec<usize>)> {
        let (_, machine) = self.ranked.pop_first()?;
        let (_, devices) = self.best_of(machine)?;
        devices.iter().for_each(|device| self.rooms[self.machines[machine].first + device].tenants.push(self.new));
        self.rank(machine);
        Some((machine, devices))
    }
}

fn machines(scenario: &Scenario) -> Vec<Machine> {
    let mut machines: Vec<Machine> = Vec::new();
    let mut first = 0;
    for (kind, device) in scenario.devices.iter().enumerate() {
        let mut left = device.count as usize;
        while left > 0 {
            let devices = left.min(device.per_node as usize);
            machines.push(Machine { kind, first, devices, programs: Vec::new() });
            first += devices;
            left -= devices;
        }
    }
    machines
}

/// Expected part of a device that a program takes: all, where its requests come without a pause.
fn load_of(scenario: &Scenario, kind: usize) -> f64 {
    let program = &scenario.programs[kind];
    let device_ns = program.device_ns(scenario.devices[0].copy_rate) as f64;
    let arrivals = &program.arrivals;
    let apart_ns = match (arrivals.every.or(arrivals.poisson), &arrivals.pause, &arrivals.gaps) {
        (Some(time), _, _) => time.0 as f64,
        (None, Some(pause), _) => pause.mean_ns() as f64 + device_ns + program.host.mean_ns() as f64,
        (None, None, Some(gaps)) => gaps.mean_ns() as f64,
        _ => device_ns + program.host.mean_ns() as f64,
    };
    (device_ns / apart_ns.max(1.0)).min(1.0)
}

/// Places all programs of a scenario.
pub(crate) fn plan(scenario: &Scenario, strategy: Strategy) -> Plan {
    let mut machines = machines(scenario);
    let room = |machine: &Machine| Room { tenants: Vec::new(), memory: scenario.devices[machine.kind].memory };
    let mut rooms: Vec<Room> = machines.iter().flat_map(|machine| vec![room(machine); machine.devices]).collect();
    let mut machine_of = Vec::with_capacity(rooms.len());
    for (at, machine) in machines.iter().enumerate() {
        machine_of.resize(machine.first + machine.devices, at);
    }
    let mut order: Vec<usize> = (0..scenario.programs.len()).collect();
    // Of those that begin at the same time, the urgent and the large ones find their places first.
    order.sort_by_key(|kind| {
        let program = &scenario.programs[*kind];
        let priority = program.priority().ok().flatten().unwrap_or(0);
        (program.start, std::cmp::Reverse(program.devices), std::cmp::Reverse(priority))
    });
    let mut unplaced = vec![0; scenario.programs.len()];
    let mut chosen: Vec<(usize, Placed)> = Vec::new();
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
