//! A scenario is read from its text, and from the files that it names.

use xsched_proto::Error;

use super::{Scenario, faults};

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
