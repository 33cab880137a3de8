//! The `xsched` command.
//!
//! Each subcommand has one file under [`cmd`]; it declares its options (`Args`) and checks their meaning before it contacts or starts
//! anything. Measurements and checks are in `xsched-bench`, the parts that it shares with the commands in `xsched-command`; other
//! shared parts lie beside them: [`target`] (the program to run), [`start`] (the daemon), [`whom`] (selection of programs),
//! [`candidates`] (completions of a shell), [`history`] (history of groups), [`width`] (of a terminal), [`reference`] (pages of the
//! reference). [`original`] has the names of XSched 1.2.0.

mod candidates;
mod cli;
mod cmd;
mod hints;
mod history;
mod inherited;
#[cfg(test)]
#[path = "../tests/common/markdown.rs"]
mod markdown;
mod original;
mod out_of_sight;
mod reference;
mod start;
mod stored;
mod target;
mod values;
mod whom;
mod why;

use cli::Command;
use failure::Result;
use xsched_command::{client, failure, folders, preload, users, width};

fn main() -> std::process::ExitCode {
    inherited::outlive_file_limit();
    let words: Vec<_> = std::env::args_os().collect();
    let done = candidates::answer(cli::command).and_then(|()| match original::asked(words.clone()) {
        None => cli::command_of(words).and_then(dispatch),
        Some(command) => command.and_then(dispatch),
    });
    match done {
        Ok(code) => code,
        Err(error) => failure::report(&error),
    }
}

fn dispatch(command: Command) -> Result {
    match command {
        Command::Run(args) => cmd::run::main(args),
        Command::Config(args) => cmd::config::main(args),
        Command::Kube(args) => cmd::kube::main(args),
        Command::Daemon(args) => cmd::daemon::main(args),
        Command::Cdi(args) => cmd::cdi::main(args),
        Command::Ps(args) => cmd::ps::main(args),
        Command::Usage(args) => cmd::usage::main(args),
        Command::Top(args) => cmd::top::main(args),
        Command::Trace(args) => cmd::trace::main(args),
        Command::Policy(args) => cmd::policy::main(args),
        Command::Hint(args) => cmd::hint::main(args),
        Command::Suspend(args) => cmd::suspend::suspend(args),
        Command::Resume(args) => cmd::suspend::resume(args),
        Command::Freeze(args) => cmd::freeze::freeze(args),
        Command::Thaw(args) => cmd::freeze::thaw(args),
        Command::ActiveWindow(args) => cmd::active_window::main(args),
        Command::Doctor(args) => cmd::doctor::main(args),
        Command::Check(args) => cmd::check::main(args),
        Command::Demo(args) => cmd::demo::main(args),
        Command::Compare(args) => cmd::compare::main(args),
        Command::Record(args) => cmd::record::main(args),
        Command::Simulate(args) => cmd::simulate::main(args),
        Command::Completions(args) => cmd::completions::main(args),
        Command::Man(args) => cmd::man::main(args, cli::command()),
        // The parser prints help at once, and ends.
        Command::Help(args) => cmd::help::main(args, cli::command()).and_then(cli::command_of).and_then(dispatch),
        Command::SimDevice(args) => cmd::sim_device::main(args),
        Command::PoolKeeper => xsched_daemon::keep_pool().map(|()| std::process::ExitCode::SUCCESS),
        Command::DeviceHost => xsched_daemon::serve_devices().map(|()| std::process::ExitCode::SUCCESS),
        Command::SchedulerHost(args) => cmd::scheduler_host::main(args),
        Command::DemoWorker(args) => cmd::demo::work(args),
        Command::CheckSteps(args) => cmd::check::take_steps(args),
        Command::Probe(args) => cmd::doctor::probe::main(args),
    }
}
