//! `xsched compare`: measures two commands of the user's, alone, together and together under xsched.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use regex_lite::Regex;
use xsched_bench::compare::{self, Files, Wish};
use xsched_proto::units::{self, Bare};

use crate::failure::{Error, Result, print};
use crate::values;

/// Measure two programs of yours: alone, together, and together under xsched
///
/// A round plays each situation once, the next round in another order. Needs no running daemon, and leaves one that
/// runs alone: the two programs must have the device for themselves.
#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP, group(clap::ArgGroup::new("drawn").args(["svg", "html"]).multiple(true)))]
pub(crate) struct Args {
    /// The program that must be quick, as a line for the shell
    #[arg(long, value_name = "COMMAND", value_parser = command, required_unless_present_any = ["from", "schema"])]
    high: Option<String>,

    /// The program that takes what is left
    #[arg(long, value_name = "COMMAND", value_parser = command, required_unless_present_any = ["from", "schema"])]
    low: Option<String>,

    /// Requests are lines of the high program: an expression with a group that takes the latency in ms [default: busy spells]
    #[arg(long, value_name = "REGEX", value_parser = requests)]
    requests: Option<Regex>,

    /// Work is lines of the low program: an expression; a group, if any, takes how much [default: launches]
    #[arg(long, value_name = "REGEX", value_parser = work)]
    work: Option<Regex>,

    /// Pause that ends a request, where requests are busy spells
    #[arg(long, value_name = "TIME", default_value = "2ms", value_parser = gap)]
    gap: Duration,

    /// Time measured in each situation of each round
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = values::seconds)]
    secs: u64,

    /// Number of rounds
    #[arg(long, value_name = "N", default_value = "3", value_parser = values::rounds)]
    rounds: u32,

    /// Time between the first work of both programs and the first measurement
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = warm_up)]
    warm_up: Duration,

    /// Longest wait for the first work of a program
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = values::seconds)]
    start: u64,

    /// Write the figures, and all single values, to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Draw the latency distributions
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Make a page with the table and pictures, in one file that needs no other
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Measure nothing: draw what --json wrote earlier, with --svg or --html
    #[arg(long, value_name = "FILE", requires = "drawn", conflicts_with_all = ["high", "low", "json"])]
    from: Option<PathBuf>,

    /// Print the JSON Schema of the file of --json
    #[arg(long, exclusive = true)]
    schema: bool,
}

/// Published schema of the file.
const SCHEMA: &str = include_str!("../../../../docs/reference/compare.schema.json");

const AFTER_HELP: &str = "\
Examples:
  xsched compare --high 'python3 serve.py' --low 'python3 train.py'
  xsched compare --high ./serve --requests 'took ([0-9.]+) ms' \\
                 --low ./train --work '^step'
  xsched compare --from report.json --html report.html

A program that ends while it is measured is started again; then both are ended.
Without --requests and --work the programs are watched by a daemon that holds
nothing back, and the table says what that costs the high program.";

/// Parses a command that is not empty.
fn command(text: &str) -> Result<String> {
    match text.trim() {
        "" => Err(Error::input("there is no command: give a line for the shell")),
        line => Ok(line.to_owned()),
    }
}

fn work(text: &str) -> Result<Regex> {
    let bad = |why: String| Error::input(format!("'{text}' is no expression: {why}"));
    let expression = Regex::new(text).map_err(|e| bad(e.to_string().replace('\n', " ")))?;
    match expression.captures_len() {
        1 | 2 => Ok(expression),
        n => Err(bad(format!("it has {} groups, one takes the number", n - 1))),
    }
}

fn requests(text: &str) -> Result<Regex> {
    let expression = work(text)?;
    match expression.captures_len() {
        2 => Ok(expression),
        _ => {
            Err(Error::input(format!("'{text}' takes no latency: put a group where the number is, such as ([0-9.]+)")))
        }
    }
}

fn gap(text: &str) -> Result<Duration> {
    units::within(text, "pause", &(Duration::from_micros(100)..=Duration::from_secs(60)), "2ms", Bare::Ms)
}

fn warm_up(text: &str) -> Result<Duration> {
    units::within(text, "warm-up", &(Duration::ZERO..=Duration::from_secs(3_600)), "5s", Bare::S)
}

/// Measures the two programs and reports the results.
pub(crate) fn main(args: Args) -> Result {
    if args.schema {
        return print(SCHEMA);
    }
    let files = Files { json: args.json.as_deref(), svg: args.svg.as_deref(), html: args.html.as_deref() };
    if let Some(from) = &args.from {
        return compare::redraw(from, &files).map(|()| ExitCode::SUCCESS);
    }
    let wish = Wish {
        high: args.high.unwrap_or_default(),
        low: args.low.unwrap_or_default(),
        requests: args.requests,
        work: args.work,
        gap_us: args.gap.as_micros() as u64,
        secs: args.secs,
        warm_up: args.warm_up,
        start: Duration::from_secs(args.start),
    };
    print(&compare::run(wish, args.rounds, &files)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_for_requests_takes_one_number() {
        assert!(requests("took ([0-9.]+) ms").is_ok() && work("^step").is_ok());
        for (text, says) in [("ms", "takes no latency"), ("(a)(b)", "it has 2 groups"), ("(", "is no expression")] {
            assert!(requests(text).unwrap_err().line().contains(says), "{text}");
        }
    }
}
