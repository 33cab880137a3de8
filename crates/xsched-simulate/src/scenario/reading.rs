//! A scenario is read from its text, and from the files that it names.

use xsched_proto::Error;

use super::{Arrival, Scenario, Traced, faults};

impl Scenario {
    /// A scenario from its text, checked. `file` returns the text of a file that it names.
    ///
    /// # Errors
    /// One line that says where the fault is and what is accepted.
    pub fn read(text: &str, file: impl Fn(&str) -> Result<String, Error>) -> Result<Scenario, Error> {
        let mut scenario: Scenario = toml::from_str(text).map_err(|fault| faults::line_of(text, &fault))?;
        scenario.read_files(file)?;
        scenario.check()?;
        Ok(scenario)
    }

    fn read_files(&mut self, file: impl Fn(&str) -> Result<String, Error>) -> Result<(), Error> {
        for program in &mut self.programs {
            if let Some(path) = &program.requests {
                let place = format!("program {}: {path}", program.name);
                program.traced =
                    requests_of(&file(path).map_err(|e| e.within(&place))?).map_err(|e| e.within(&place))?;
            }
            let Some(path) = &program.arrivals.file else { continue };
            let place = format!("program {}: {path}", program.name);
            for (at, line) in file(path).map_err(|e| e.within(&place))?.lines().enumerate() {
                let line = line.split('#').next().unwrap_or_default().trim();
                if line.is_empty() {
                    continue;
                }
                let ms: Option<f64> = line.parse().ok().filter(|ms: &f64| ms.is_finite() && *ms >= 0.0);
                let fault = || Error::input(format!("{place}, line {}: '{line}' is no time in ms", at + 1));
                program.arrivals.times.push((ms.ok_or_else(fault)? * 1e6) as u64);
            }
            program.arrivals.times.sort_unstable();
        }
        Ok(())
    }
}

/// Requests of a file.
fn requests_of(text: &str) -> Result<Vec<Traced>, Error> {
    let mut all = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
        if words.is_empty() {
            continue;
        }
        let fault =
            || Error::input(format!("line {}: '{line}' is no request: use ARRIVAL COMMANDS DEVICE HOST", at + 1));
        all.push(request_of(&words).ok_or_else(fault)?);
    }
    let is_late = |pair: &[Traced]| matches!(pair, [Traced { arrival: Arrival::At(one), .. }, Traced { arrival: Arrival::At(next), .. }] if next < one);
    match all.windows(2).position(is_late) {
        Some(_) => Err(Error::input("requests come in the order of their arrivals")),
        None => Ok(all),
    }
}

/// A request of its words: arrival in ms (`+` = after the end of the one before), commands, device time and host time in ms.
fn request_of(words: &[&str]) -> Option<Traced> {
    let [arrival, commands, device, host] = words else { return None };
    let ns = |text: &str| {
        let ms: f64 = text.parse().ok().filter(|ms: &f64| ms.is_finite() && (0.0..1e12).contains(ms))?;
        Some((ms * 1e6).round() as u64)
    };
    let arrival = match arrival.strip_prefix('+') {
        Some(pause) => Arrival::After(ns(pause)?),
        None => Arrival::At(ns(arrival)?),
    };
    let commands = commands.parse().ok().filter(|n| (1..=1_000_000).contains(n))?;
    Some(Traced { arrival, commands, device_ns: ns(device)?, host_ns: ns(host)? })
}
