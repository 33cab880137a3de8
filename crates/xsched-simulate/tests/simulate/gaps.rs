//! Gaps within the requests of an urgent program, in which others may work.

use xsched_simulate::{NATIVE, Outcome, ProgramOutcome, Run, Scenario};

/// A server that works for 1.2 ms and leaves a gap, again and again, beside a training, on a device that switches as an H100 does.
fn scenario(gap: &str, others: &str) -> Scenario {
    let text = format!(
        "time = \"4s\"\n[[device]]\nswitch = \"50us\"\nsave = \"120us\"\n\
         [[program]]\nname = \"server\"\nclass = \"high\"\narrivals = {{ pause = \"{gap}\" }}\n\
         kernels = [{{ count = 12, time = \"100us\", launch = \"5us\" }}]\n{others}"
    );
    Scenario::read(&text, |_| unreachable!()).expect(&text)
}

const TRAINING: &str = "[[program]]\nname = \"training\"\nclass = \"low\"\n\
    kernels = [{ count = 200, time = \"100us +- 20%\", launch = \"5us\" }]\n";
const LONG_KERNELS: &str = "[[program]]\nname = \"training\"\nclass = \"low\"\n\
    kernels = [{ count = 50, time = \"2ms\", launch = \"5us\" }]\n";

fn play(scenario: &Scenario, policy: &str) -> Outcome {
    Run::new(scenario, policy, scenario.placement.strategy).expect("a policy").play()
}

fn of<'a>(outcome: &'a Outcome, name: &str) -> &'a ProgramOutcome {
    outcome.programs.iter().find(|program| program.name == name).expect("a program")
}

/// Requests of the server for each one that it serves alone, and the part of the device that the other program has, in percent.
fn beside(gap: &str, others: &str) -> (f64, f64) {
    let alone = of(&play(&scenario(gap, ""), NATIVE), "server").requests.count();
    let outcome = play(&scenario(gap, others), "hpf");
    (of(&outcome, "server").requests.count() as f64 / alone as f64, of(&outcome, "training").share_percent())
}

const GAPS: [&str; 17] = [
    "300us",
    "450us",
    "520us",
    "600us",
    "800us",
    "1ms",
    "1.2ms",
    "1.5ms",
    "2ms",
    "3ms",
    "4ms",
    "800us +- 20%",
    "400us..1.2ms",
    "200us..4ms",
    "exp 600us",
    "exp 1ms",
    "exp 3ms",
];

#[test]
fn an_urgent_program_keeps_its_rate_whatever_its_gaps() {
    let mut low = Vec::new();
    for (others, name) in [(TRAINING, "short kernels"), (LONG_KERNELS, "long kernels")] {
        for gap in GAPS {
            let (rate, share) = beside(gap, others);
            println!("{gap}, {name}: {rate:.3}, {share:.1} %");
            if rate < 0.95 {
                low.push((gap, name, rate));
            }
        }
    }
    assert!(low.is_empty(), "{low:?}");
}

#[test]
fn others_get_what_the_slowdown_budget_buys() {
    for (gap, least) in [("1.2ms", 15.0), ("2ms", 30.0), ("4ms", 60.0)] {
        let (rate, share) = beside(gap, TRAINING);
        assert!(share >= least, "{gap}: {share:.1} %, the server at {rate:.3}");
    }
}
