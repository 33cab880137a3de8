//! `xsched compare`: two commands of the user's, alone, together and together under xsched.

mod bursts;
mod program;
mod report;
mod stage;

use std::path::Path;

use self::report::Report;
pub use self::stage::Wish;
use self::stage::{Case, Stage};
use crate::children;
use crate::failure::{Error, Result};
use crate::private::{Progress, writable, write};

/// Measures, writes the files that are wished for, and returns a table.
///
/// # Errors
/// One line. Exit code 2 where a file cannot be written, 3 where the machine does not allow it.
pub fn run(wish: Wish, rounds: u32, json: Option<&Path>, svg: Option<&Path>) -> Result<String> {
    writable(json.into_iter().chain(svg))?;
    children::catch_signals();
    let mut stage = Stage::new(wish).map_err(|why| why.within("compare"))?;
    let report = measure(&mut stage, rounds as usize).map_err(|why| why.within("compare"))?;
    let wish = &stage.wish;
    json.map_or(Ok(()), |file| write(file, &report.json(wish)?))?;
    svg.map_or(Ok(()), |file| report.plot(&wish.subject(), file))?;
    Ok(report.table(wish))
}

/// Draws an earlier comparison from its JSON.
///
/// # Errors
/// One line. Exit code 2 where a file is no such JSON, or cannot be written.
pub fn redraw(from: &Path, svg: &Path) -> Result<()> {
    writable([svg])?;
    draw(from, svg).map_err(|why| why.within("compare"))
}

fn draw(from: &Path, svg: &Path) -> Result<()> {
    let text =
        std::fs::read_to_string(from).map_err(|e| Error::input(format!("cannot read {}: {e}", from.display())))?;
    let (subject, report) = Report::recorded(&text)
        .map_err(|why| Error::input(format!("{} is no report of compare --json: {why}", from.display())))?;
    report.plot(&subject, svg)
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
