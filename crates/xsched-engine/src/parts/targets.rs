//! Targets: the programs that a command means.

use xsched_proto::wire::Target;

use crate::program::Program;

/// The search for the programs that a command names.
#[derive(Debug)]
pub(crate) struct Search {
    /// [`xsched_proto::bounded::TARGETS_MAX`] at most, none twice, no queues: a set of them is a `u64`.
    pub(crate) targets: Vec<Target>,
    /// Start of the process of each target, in clock ticks, where that matters and is known; as many as were looked up so far.
    pub(crate) starts: Vec<Option<u64>>,
    /// Targets that name a process which is attached itself, whoever its user is.
    pub(crate) attached: u64,
    /// The user's programs that are still to be compared.
    pub(crate) candidates: Vec<u64>,
    /// Programs that some target means.
    pub(crate) matches: Vec<Match>,
}

/// A program that some targets mean.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Match {
    pub(crate) pid: u32,
    pub(crate) program: u64,
    /// Targets that mean the program itself.
    pub(crate) itself: u64,
    /// Targets that name a process which started it, and that count where that process is not attached.
    pub(crate) below: u64,
}

impl Search {
    /// A search among some programs.
    pub(crate) fn new(targets: Vec<Target>, candidates: Vec<u64>) -> Search {
        Search { targets, starts: Vec::new(), attached: 0, candidates, matches: Vec::new() }
    }

    /// Compares a program with all targets.
    pub(crate) fn compare<M>(&mut self, id: u64, program: &Program<M>) {
        let (mut itself, mut below) = (0, 0);
        let job = program.own_job();
        for (at, (target, start)) in self.targets.iter().zip(&self.starts).enumerate() {
            let is_below = |pid: u32| is_below(program, pid, *start);
            let bit = 1 << at;
            match target {
                Target::Pid(pid) if program.pid == *pid => itself |= bit,
                // The first process started everything: that is what `All` is for.
                Target::Pid(pid) if *pid != 1 && is_below(*pid) => below |= bit,
                Target::Tree(pid) if is_below(*pid) => itself |= bit,
                Target::Job(name) if job == Some(name.as_str()) => itself |= bit,
                Target::User(uid) if program.user.uid == *uid => itself |= bit,
                Target::All => itself |= bit,
                _ => (),
            }
        }
        if itself | below != 0 {
            self.matches.push(Match { pid: program.pid, program: id, itself, below });
        }
    }

    /// The programs that are meant, in the order of their process ids.
    ///
    /// # Errors
    /// The first target that means no program.
    pub(crate) fn found(mut self) -> Result<Vec<u64>, Target> {
        let attached = self.attached;
        let means = |m: &Match| m.itself | m.below & !attached;
        let all = self.matches.iter().fold(0, |all, m| all | means(m));
        if let Some(at) = (0..self.targets.len()).find(|at| all >> at & 1 == 0) {
            return Err(self.targets.swap_remove(at));
        }
        self.matches.retain(|m| means(m) != 0);
        self.matches.sort_unstable_by_key(|m| (m.pid, m.program));
        Ok(self.matches.into_iter().map(|m| m.program).collect())
    }
}

/// Returns true if a program is a process that started at this time, or was started by it. A process that has got the number of one that
/// has ended since is another one.
fn is_below<M>(program: &Program<M>, pid: u32, start: Option<u64>) -> bool {
    let is_older = || start.zip(program.start).is_none_or(|(start, since)| start <= since);
    program.ancestors.contains(&pid) && is_older()
}

/// Targets, each once.
pub(crate) fn distinct(targets: Vec<Target>) -> Vec<Target> {
    let mut once: Vec<Target> = Vec::with_capacity(targets.len());
    for target in targets {
        if !once.contains(&target) {
            once.push(target);
        }
    }
    once
}

/// Process ids in a line of the log: the first of so many.
pub(crate) fn processes(n: usize, pids: impl Iterator<Item = u32>) -> String {
    let few: Vec<String> = pids.take(8).map(|pid| pid.to_string()).collect();
    match n {
        1 => format!("process {}", few.join(", ")),
        _ if n > few.len() => format!("processes {} and {} more", few.join(", "), n - few.len()),
        _ => format!("processes {}", few.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(attached: u64, matches: &[(u64, u64, u64)]) -> Search {
        let matches =
            matches.iter().map(|&(program, itself, below)| Match { pid: 100 - program as u32, program, itself, below });
        let targets = vec![Target::Pid(1), Target::All, Target::Tree(3)];
        Search { attached, matches: matches.collect(), ..Search::new(targets, Vec::new()) }
    }

    #[test]
    fn a_process_that_is_attached_stands_for_itself_and_else_for_those_it_started() {
        let of = |attached, matches: &[(u64, u64, u64)]| {
            search(attached, matches).found().map_err(|target| format!("{target:?}"))
        };
        assert_eq!(of(1, &[(7, 0b110, 0), (8, 0b001, 0), (9, 0, 0b001)]), Ok(vec![8, 7]));
        assert_eq!(of(0, &[(7, 0b110, 0), (9, 0, 0b001)]), Ok(vec![9, 7]));
        assert_eq!(of(1, &[(7, 0b110, 0), (9, 0, 0b001)]), Err("Pid(1)".into()), "it is another user's");
    }

    #[test]
    fn the_first_target_that_means_nothing_is_told() {
        let of = |matches: &[(u64, u64, u64)]| search(0, matches).found().map_err(|target| format!("{target:?}"));
        assert_eq!(of(&[(7, 0b001, 0)]), Err("All".into()));
        assert_eq!(of(&[(7, 0b011, 0)]), Err("Tree(3)".into()));
    }
}
