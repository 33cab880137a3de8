//! A scenario as text, as [`Scenario::read`] reads it.

use std::fmt::{self, Display, Formatter};

use super::{Arrivals, Detail, Device, Event, Kernels, Preemption, Program, Scenario, exact};

impl Preemption {
    /// Its word in a scenario.
    pub fn name(self) -> &'static str {
        match self {
            Preemption::Host => "host",
            Preemption::Gates => "gates",
            Preemption::Slices => "slices",
            Preemption::Interrupt => "interrupt",
        }
    }
}

impl Display for Scenario {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if !self.question.is_empty() {
            writeln!(f, "question = {:?}", self.question)?;
        }
        writeln!(f, "time = \"{}\"\npolicy = {:?}", exact(self.time.0), self.policy)?;
        if !self.compare.is_empty() {
            writeln!(f, "compare = {:?}", self.compare)?;
        }
        writeln!(f, "seed = {}", self.seed)?;
        if self.detail == Detail::Bursts {
            writeln!(f, "detail = \"bursts\"")?;
        }
        if let Some(interval) = self.interval {
            writeln!(f, "interval = \"{}\"", exact(interval.0))?;
        }
        let daemon = &self.daemon;
        let [latency, budget, guard] = [daemon.latency, daemon.budget, daemon.guard].map(|time| exact(time.0));
        writeln!(f, "\n[daemon]\nlatency = \"{latency}\"\nbudget = \"{budget}\"\nguard = \"{guard}\"")?;
        let placement = &self.placement;
        writeln!(f, "\n[placement]\nstrategy = \"{}\"", placement.strategy.name())?;
        if !placement.compare.is_empty() {
            let all: Vec<&str> = placement.compare.iter().map(|strategy| strategy.name()).collect();
            writeln!(f, "compare = {all:?}")?;
        }
        self.devices.iter().try_for_each(|device| device.fmt(f))?;
        self.programs.iter().try_for_each(|program| program.fmt(f))?;
        self.events.iter().try_for_each(|event| event.fmt(f))
    }
}

impl Display for Device {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n[[device]]\ncount = {}\nper_node = {}", self.count, self.per_node)?;
        writeln!(f, "timeslice = \"{}\"\nswitch = \"{}\"", exact(self.timeslice.0), exact(self.switch.0))?;
        writeln!(f, "save = \"{}\"", exact(self.save.0))?;
        writeln!(f, "preemption = \"{}\"\nmemory = {:?}", self.preemption.name(), self.memory)?;
        writeln!(f, "pool = {}\ninside = {}\ncopy_rate = {:?}", self.pool, self.inside, self.copy_rate)
    }
}

impl Display for Program {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n[[program]]\nname = {:?}\ncount = {}", self.name, self.count)?;
        let texts = [
            ("class", &self.class),
            ("timeslice", &self.timeslice),
            ("deadline", &self.deadline),
            ("slo", &self.slo),
            ("namespace", &self.namespace),
        ];
        for (key, text) in texts {
            if let Some(text) = text {
                writeln!(f, "{key} = {text:?}")?;
            }
        }
        let numbers = [
            ("weight", self.weight),
            ("utilization", self.utilization),
            ("user", self.user),
            ("level", self.level.map(u32::from)),
        ];
        for (key, number) in numbers {
            if let Some(number) = number {
                writeln!(f, "{key} = {number}")?;
            }
        }
        if !self.device.is_empty() {
            writeln!(f, "device = {:?}", self.device)?;
        }
        writeln!(f, "devices = {}\nmemory = {:?}\nwidth = {}", self.devices, self.memory, self.width)?;
        writeln!(f, "outside = {}", self.outside)?;
        writeln!(f, "start = \"{}\"", exact(self.start.0))?;
        if let Some(end) = self.end {
            writeln!(f, "end = \"{}\"", exact(end.0))?;
        }
        if let Some(file) = &self.requests {
            return writeln!(f, "requests = {file:?}");
        }
        self.arrivals.fmt(f)?;
        writeln!(f, "host = {}\nwake = {}\nkernels = [", self.host, self.wake)?;
        self.kernels.iter().try_for_each(|kernels| kernels.fmt(f))?;
        writeln!(f, "]")
    }
}

impl Display for Arrivals {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Arrivals { every: Some(time), .. } => writeln!(f, "arrivals = {{ every = \"{}\" }}", exact(time.0)),
            Arrivals { poisson: Some(time), load, .. } if load.is_empty() => {
                writeln!(f, "arrivals = {{ poisson = \"{}\" }}", exact(time.0))
            }
            Arrivals { poisson: Some(time), load, .. } => {
                writeln!(f, "arrivals = {{ poisson = \"{}\", load = {load:?} }}", exact(time.0))
            }
            Arrivals { pause: Some(times), .. } => writeln!(f, "arrivals = {{ pause = {times} }}"),
            Arrivals { gaps: Some(times), .. } => writeln!(f, "arrivals = {{ gaps = {times} }}"),
            Arrivals { file: Some(file), .. } => writeln!(f, "arrivals = {{ file = {file:?} }}"),
            _ => Ok(()),
        }
    }
}

impl Display for Kernels {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "    {{ count = {}, ", self.count)?;
        match (&self.time, &self.total, self.copy) {
            (Some(times), ..) => write!(f, "time = {times}, ")?,
            (None, Some(times), _) => write!(f, "total = {times}, ")?,
            (None, None, mib) => write!(f, "copy = {:?}, ", mib.unwrap_or(0.0))?,
        }
        write!(f, "launch = {}, steady = {}, ", self.launch, self.steady)?;
        writeln!(f, "wait = {}, each = {} }},", self.wait, self.each)
    }
}

impl Display for Event {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n[[event]]\nat = \"{}\"", exact(self.at.0))?;
        let texts =
            [("policy", &self.policy), ("kill", &self.kill), ("program", &self.program), ("class", &self.class)];
        for (key, text) in texts {
            if let Some(text) = text {
                writeln!(f, "{key} = {text:?}")?;
            }
        }
        self.restart.map_or(Ok(()), |time| writeln!(f, "restart = \"{}\"", exact(time.0)))
    }
}
