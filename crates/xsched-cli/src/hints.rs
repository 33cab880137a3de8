//! Options of `run` and `hint` with hints for the policy.

use xsched_proto::Error;
use xsched_proto::hint::{Hint, Hints};

/// What is said for the policy. Each policy looks at some of it: `xsched policy list`.
#[derive(clap::Args, Debug, Default)]
pub(crate) struct HintArgs {
    /// Weight of its share, 1..10000 [default: 100] (up, pup, spup, cfs, fair)
    #[arg(long, value_name = "W", value_parser = parser(Hint::Weight), allow_hyphen_values = true)]
    weight: Option<Hints>,

    /// Its part of the device in percent, 0..100, before its weight (up, pup, spup, cfs, fair)
    #[arg(long, value_name = "PERCENT", value_parser = parser(Hint::Utilization), allow_hyphen_values = true)]
    utilization: Option<Hints>,

    /// How long a turn lasts, such as 5ms; a bare number is µs [default: 5ms] (up, pup, spup, fair, mlfq; hardware time slices)
    #[arg(long, value_name = "TIME", value_parser = parser(Hint::Timeslice), allow_hyphen_values = true)]
    timeslice: Option<Hints>,

    /// When a request is due after its begin, such as 10ms, or none (kedf)
    #[arg(long, value_name = "TIME|none", value_parser = parser(Hint::Deadline), allow_hyphen_values = true)]
    deadline: Option<Hints>,

    /// How many programs may have the device together while it has it, 1..64, or none (kedf)
    #[arg(long, value_name = "K|none", value_parser = parser(Hint::K), allow_hyphen_values = true)]
    k: Option<Hints>,

    /// How long a request may wait, and the priorities before and after, such as 2ms:low:high (lax)
    #[arg(long, value_name = "TIME[:N:N]|none", value_parser = parser(Hint::Laxity), allow_hyphen_values = true)]
    laxity: Option<Hints>,

    /// Whether it counts as having the active window, whatever window is (awf)
    #[arg(long, value_name = "on|off", value_parser = parser(Hint::Active))]
    active: Option<Hints>,

    /// What it aims at: a P99 of its requests such as 2.5ms, a slowdown such as 1.2x, or none (slo)
    #[arg(long, value_name = "TIME|Nx|none", value_parser = parser(Hint::Slo), allow_hyphen_values = true)]
    slo: Option<Hints>,
}

/// Parser for one kind of hint.
fn parser(hint: Hint) -> impl Fn(&str) -> Result<Hints, Error> + Clone + Send + Sync + 'static {
    move |text| {
        let mut hints = Hints::default();
        hints.set(hint, text).map(|()| hints)
    }
}

impl HintArgs {
    /// Ids of the options, for a group of options of which one is needed.
    pub(crate) const IDS: [&'static str; 8] =
        ["weight", "utilization", "timeslice", "deadline", "k", "laxity", "active", "slo"];

    /// All hints that were given.
    pub(crate) fn hints(&self) -> Hints {
        let given =
            [self.weight, self.utilization, self.timeslice, self.deadline, self.k, self.laxity, self.active, self.slo];
        given.into_iter().flatten().fold(Hints::default(), Hints::or)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        hints: HintArgs,
    }

    #[test]
    fn every_hint_has_an_option_of_its_name() {
        assert_eq!(HintArgs::IDS, Hint::ALL.map(Hint::name));
        let texts = ["300", "75", "900", "5000", "2", "2000:-128:128", "on", "2500us"];
        let options = Hint::ALL.iter().zip(texts).flat_map(|(hint, text)| [format!("--{}", hint.name()), text.into()]);
        let command = Command::parse_from(["test".to_owned()].into_iter().chain(options));
        let hints = command.hints.hints();
        for (hint, text) in Hint::ALL.into_iter().zip(texts) {
            assert_eq!(hints.text(hint).as_deref(), Some(text));
        }
    }
}
