//! `xsched compare`: two commands of the user's, alone, together and together under xsched.

mod bursts;
mod program;
mod report;
mod stage;

use std::path::Path;

use self::report::Report;
pub use self::stage::Wish;
use self::stage::{Case, Stage, Subject};
use crate::children;
use crate::failure::{Error, Result};
use crate::private::{Progress, writable, write};

/// Measures, writes the files that are wished for, and returns a table.
///
/// # Errors
/// One line. Exit code 2 where a file cannot be written, 3 where the machine does not allow it.
pub fn run(wish: Wish, rounds: u32, files: &Files<'_>) -> Result<String> {
    writable(files.all())?;
    children::catch_signals();
    let mut stage = Stage::new(wish).map_err(|why| why.within("compare"))?;
    let report = measure(&mut stage, rounds as usize).map_err(|why| why.within("compare"))?;
    let wish = &stage.wish;
    files.json.map_or(Ok(()), |file| write(file, &report.json(wish)?))?;
    files.write_drawn(&report, &wish.subject())?;
    Ok(report.table(wish))
}

/// Files to be written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Files<'a> {
    /// Figures and all single values.
    pub json: Option<&'a Path>,
    /// Picture of the latency distributions.
    pub svg: Option<&'a Path>,
    /// Page with table and pictures.
    pub html: Option<&'a Path>,
}

impl<'a> Files<'a> {
    fn all(&self) -> impl Iterator<Item = &'a Path> {
        self.json.into_iter().chain(self.svg).chain(self.html)
    }

    /// Draws the picture and the page, if they are wished for.
    fn write_drawn(&self, report: &Report, subject: &Subject) -> Result<()> {
        self.svg.map_or(Ok(()), |file| report.plot(subject, file))?;
        self.html.map_or(Ok(()), |file| write(file, &report.page(subject)?))
    }
}

/// Draws an earlier comparison from its JSON.
///
/// # Errors
/// One line. Exit code 2 where a file is no such JSON, or cannot be written.
pub fn redraw(from: &Path, files: &Files<'_>) -> Result<()> {
    writable(files.all())?;
    redraw_from(from, files).map_err(|why| why.within("compare"))
}

fn redraw_from(from: &Path, files: &Files<'_>) -> Result<()> {
    let text =
        std::fs::read_to_string(from).map_err(|e| Error::input(format!("cannot read {}: {e}", from.display())))?;
    let (subject, report) = Report::recorded(&text)
        .map_err(|why| Error::input(format!("{} is no report of compare --json: {why}", from.display())))?;
    files.write_drawn(&report, &subject)
}

fn measure(stage: &mut Stage, rounds: usize) -> Result<Report> {
    let mut report = Report::default();
    let cases = Case::ALL.len();
    let progress = Progress::new("compare", Some(&format!("plays {cases} situations in each of {rounds} rounds")));
    for round in 0..rounds {
        for step in 0..cases {
            // Each round begins with another situation, so that drift of the machine hits all alike.
            let case = Case::ALL[(round + step) % cases];
            let at = format!("round {} of {rounds}, {} of {cases}", round + 1, step + 1);
            progress.show(&format!("{at}: {}", case.name()));
            let played = stage.play(case)?;
            if let Some(observed) = played.cost.filter(|_| stage.wish.requests.is_none()) {
                progress.show(&format!("{at}: alone, not watched"));
                report.add_cost(observed, stage.play_bare(observed)?);
            }
            report.add(case, played);
        }
    }
    Ok(report)
}
