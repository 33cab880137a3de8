//! Options of `run` and `hint` with hints for the policy.

use xsched_proto::Error;
use xsched_proto::hint::{Hint, Hints};

/// Hints for the policy. Each policy looks at some of them: `xsched policy list`.
#[derive(clap::Args, Debug, Default)]
pub(crate) struct HintArgs {
    /// Weight of its share, 1..10000 [default: 100] (up, pup, spup, cfs, fair)
    #[arg(long, value_name = "W", value_parser = parser(Hint::Weight), allow_hyphen_values = true)]
    weight: Option<Hints>,

    /// Part of the device in percent, 0..100; counts before the weight (up, pup, spup, cfs, fair)
    #[arg(long, value_name = "PERCENT", value_parser = parser(Hint::Utilization), allow_hyphen_values = true)]
    utilization: Option<Hints>,

    /// Length of a turn, such as 5ms; a bare number is µs [default: 5ms] (up, pup, spup, fair, mlfq; hardware time slices)
    #[arg(long, value_name = "TIME", value_parser = parser(Hint::Timeslice), allow_hyphen_values = true)]
    timeslice: Option<Hints>,

    /// Time from the begin of a request until it is due, such as 10ms, or none (kedf)
    #[arg(long, value_name = "TIME|none", value_parser = parser(Hint::Deadline), allow_hyphen_values = true)]
    deadline: Option<Hints>,

    /// Number of programs that may have the device together, this one among them, 1..64, or none (kedf)
    #[arg(long, value_name = "K|none", value_parser = parser(Hint::K), allow_hyphen_values = true)]
    k: Option<Hints>,

    /// Longest wait of a request, and the priorities until then and from then on, such as 2ms:low:high (lax)
    #[arg(long, value_name = "TIME[:N:N]|none", value_parser = parser(Hint::Laxity), allow_hyphen_values = true)]
    laxity: Option<Hints>,

    /// Treat the program as the one with the active window, or as another, whatever window is active (awf)
    #[arg(long, value_name = "on|off", value_parser = parser(Hint::Active))]
    active: Option<Hints>,

    /// Target: a P99 of its requests such as 2.5ms, a slowdown such as 1.2x, or none (slo)
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
