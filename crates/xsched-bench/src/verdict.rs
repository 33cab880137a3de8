//! Verdict of a measurement with two programs: one sentence, with its doubt.

/// Requests below which P99 is the worst of them.
pub(crate) const FEW: usize = 100;
/// Ratio to alone up to which a program counts as undisturbed.
const DISTURBED: f64 = 1.1;
/// Ratio between the greatest and the least P99 of rounds alone, above which the machine counts as unsteady.
const STEADY: f64 = 1.5;

/// Figures of the urgent program in a situation, and the work of the other.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    pub(crate) requests: usize,
    pub(crate) p99_ms: f64,
    pub(crate) p99_of_rounds_ms: Vec<f64>,
    /// Work of the other program for each second; none where it does not run.
    pub(crate) work_per_s: Option<f64>,
}

impl Figures {
    fn range(&self) -> (f64, f64) {
        let rounds = self.p99_of_rounds_ms.iter().copied();
        (rounds.clone().fold(f64::MAX, f64::min), rounds.fold(0.0, f64::max))
    }
}

/// Three situations, and the names of the two programs.
pub(crate) struct Measured<'a> {
    pub(crate) alone: &'a Figures,
    pub(crate) native: &'a Figures,
    pub(crate) xsched: &'a Figures,
    pub(crate) urgent: &'a str,
    pub(crate) other: &'a str,
}

/// The sentence. `noise` is a sign of a cause that can only be the machine; `doubts` are further ones of the caller.
pub(crate) fn verdict(measured: &Measured<'_>, noise: Option<String>, doubts: Vec<String>) -> String {
    let Measured { alone, native, xsched, urgent, other } = *measured;
    let (without, with) = (native.p99_ms / alone.p99_ms, xsched.p99_ms / alone.p99_ms);
    let (native_range, xsched_range) = (native.range(), xsched.range());
    let overlap = native_range.0 <= xsched_range.1 && xsched_range.0 <= native_range.1;
    let kept = match (native.work_per_s, xsched.work_per_s) {
        (Some(native), Some(xsched)) if native > 0.0 => {
            format!(", and {other} keeps {:.0} % of the work that it does without", xsched * 100.0 / native)
        }
        _ => String::new(),
    };
    let both = format!("P99 of {urgent} is {without:.2} x of alone without xsched and {with:.2} x under it");
    let is_disturbed = without > DISTURBED || with > DISTURBED;
    let (fast, slow) = alone.range();
    let is_faster = without.min(with) < 1.0 / STEADY;
    let finding = if noise.is_some() || slow > STEADY * fast || is_faster {
        format!("nothing can be told: {both}{kept}")
    } else if !is_disturbed {
        format!("{other} does not disturb {urgent} here, so that there is nothing to mend: {both}{kept}")
    } else if overlap {
        format!("no clear difference: {both}, and rounds of both are alike{kept}")
    } else if with < without {
        format!("xsched helps: P99 of {urgent} is {with:.2} x of alone instead of {without:.2} x{kept}")
    } else {
        format!("xsched does harm here: P99 of {urgent} is {with:.2} x of alone instead of {without:.2} x{kept}")
    };
    let mut doubts: Vec<String> = noise.into_iter().chain(doubts).collect();
    let least = [alone, native, xsched].map(|figures| figures.requests).into_iter().min().unwrap_or(0);
    if least < FEW {
        doubts.push(format!("P99 rests on {least} requests, of which it is the worst"));
    }
    if alone.p99_of_rounds_ms.len() < 2 {
        doubts.push("one round shows no noise".to_owned());
    } else if slow > STEADY * fast {
        doubts.push(format!("alone, P99 of one round is {:.1} x that of another", slow / fast));
    }
    if is_faster {
        doubts.push("together, P99 is far better than alone, which only the machine can do".to_owned());
    }
    let doubt = if doubts.is_empty() { "none, the rounds agree".to_owned() } else { doubts.join("; ") };
    format!("Verdict: {finding}. Doubt: {doubt}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(requests: usize, rounds: &[f64], work_per_s: Option<f64>) -> Figures {
        let p99_ms = rounds.iter().copied().fold(0.0, f64::max);
        Figures { requests, p99_ms, p99_of_rounds_ms: rounds.to_vec(), work_per_s }
    }

    fn told(requests: usize, alone: &[f64], native: &[f64], xsched: &[f64]) -> String {
        let [alone, native, xsched] = [(alone, None), (native, Some(10.0)), (xsched, Some(8.0))]
            .map(|(rounds, work)| figures(requests, rounds, work));
        let (urgent, other) = ("the high program", "the low one");
        verdict(&Measured { alone: &alone, native: &native, xsched: &xsched, urgent, other }, None, Vec::new())
    }

    #[test]
    fn a_verdict_is_one_sentence_with_its_doubt() {
        let kept = "and the low one keeps 80 % of the work that it does without";
        assert_eq!(
            told(300, &[10.0, 10.0], &[30.0, 29.0], &[11.0, 11.0]),
            format!(
                "Verdict: xsched helps: P99 of the high program is 1.10 x of alone instead of 3.00 x, {kept}. Doubt: none, the \
                 rounds agree."
            )
        );
        assert!(told(300, &[10.0, 10.0], &[20.0, 20.0], &[30.0, 30.0]).contains("xsched does harm here: P99 of"));
        let same = told(300, &[10.0, 10.0], &[20.0, 30.0], &[15.0, 25.0]);
        assert!(same.contains("no clear difference: P99 of the high program is 3.00 x"), "{same}");
        assert!(told(300, &[10.0; 2], &[10.5; 2], &[10.1; 2]).contains("nothing to mend"));
    }

    #[test]
    fn what_a_run_cannot_tell_is_its_doubt() {
        let few = told(51, &[10.0], &[30.0], &[11.0]);
        assert!(
            few.ends_with("Doubt: P99 rests on 51 requests, of which it is the worst; one round shows no noise."),
            "{few}"
        );
        let noisy = told(300, &[10.0, 20.0], &[60.0; 2], &[21.0; 2]);
        assert!(noisy.starts_with("Verdict: nothing can be told: P99 of the high program is 3.00 x"), "{noisy}");
        let faster = told(300, &[10.0, 10.0], &[4.0, 4.0], &[10.0, 10.0]);
        assert!(faster.contains("nothing can be told") && faster.contains("which only the machine can do"), "{faster}");
        assert!(noisy.ends_with("Doubt: alone, P99 of one round is 2.0 x that of another."), "{noisy}");
    }
}
