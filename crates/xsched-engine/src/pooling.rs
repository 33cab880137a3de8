//! Pools as the engine sees them: private MPS servers, two for each user.

use xsched_policy::PoolId;
use xsched_proto::class::Class;
use xsched_proto::wire::PoolSide;

use crate::tuning::{HOST_BOUND_BURSTS, HOST_BOUND_PERCENT, LONG_US};

/// One of a user's two pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The inner pool, in which an urgent program may sit. Its time slice is long.
    Inner,
    /// The outer pool: for programs that are not proven. Its time slice is short.
    Outer,
}

/// A program's place in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The pool, by the number of its server: no two servers have the same.
    pub server: PoolId,
    /// Inner or outer.
    pub side: Side,
}

impl Side {
    /// Both sides, the inner one first.
    pub const ALL: [Side; 2] = [Side::Inner, Side::Outer];

    /// As it is told.
    pub fn told(self) -> PoolSide {
        match self {
            Side::Inner => PoolSide::Inner,
            Side::Outer => PoolSide::Outer,
        }
    }
}

/// The place of urgent programs: those of a class above the highest that pools are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgent {
    /// Always a context of their own.
    Outside,
    /// The inner pool.
    Inside,
    /// The inner pool for programs that are proven and whose host is the bottleneck, and for those that ask for it.
    Auto,
}

impl Urgent {
    /// The place without a configuration.
    pub const DEFAULT: Urgent = Urgent::Auto;
    /// All places.
    pub const ALL: [Urgent; 3] = [Urgent::Outside, Urgent::Inside, Urgent::Auto];

    /// Its word in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Urgent::Outside => "outside",
            Urgent::Inside => "inside",
            Urgent::Auto => "auto",
        }
    }

    /// The place with this name.
    pub fn named(text: &str) -> Option<Urgent> {
        Urgent::ALL.into_iter().find(|urgent| urgent.name().eq_ignore_ascii_case(text))
    }
}

/// Evidence that a program does others of a pool no harm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The program worked on the device for so many minutes without a GPU fault.
    Proven {
        /// Number of minutes.
        minutes: u64,
    },
    /// The program did so for too few minutes.
    Unproven {
        /// Minutes so far.
        minutes: u64,
        /// Minutes that it takes.
        of: u64,
    },
    /// Evidence cannot be had, for this reason.
    Unknown(String),
    /// No proof is asked for.
    Waived,
}

impl Proof {
    /// Returns true if a program with it may be beside urgent ones.
    pub fn is_enough(&self) -> bool {
        matches!(self, Proof::Proven { .. } | Proof::Waived)
    }

    /// One line.
    pub fn text(&self) -> String {
        match self {
            Proof::Proven { minutes } => format!("proven: {minutes} min without a GPU fault"),
            Proof::Unproven { minutes, of } => format!("not proven yet: {minutes} of {of} min without a GPU fault"),
            Proof::Unknown(why) => format!("not proven: {why}"),
            Proof::Waived => "no proof is asked for (proven_minutes = 0)".to_owned(),
        }
    }
}

/// Bursts of a program that were measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceShare {
    /// Their number.
    pub bursts: u64,
    /// Part of their time in which the device worked, in percent.
    pub percent: u32,
}

impl DeviceShare {
    /// Returns true once it is known that the host is the bottleneck.
    pub fn is_host_bound(self) -> bool {
        self.bursts >= HOST_BOUND_BURSTS && self.percent <= HOST_BOUND_PERCENT
    }

    /// The reason for which the device may be the bottleneck; none = the host is.
    fn obstacle(self) -> Option<String> {
        if self.bursts < HOST_BOUND_BURSTS {
            let seen = self.bursts;
            return Some(format!(
                "not known yet whether the device is its bottleneck: {seen} of {HOST_BOUND_BURSTS} requests seen"
            ));
        }
        let percent = self.percent;
        (!self.is_host_bound()).then(|| format!("the device is its bottleneck ({percent} % of its requests)"))
    }
}

/// Standing of a program by what was learned of its earlier runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Evidence of its harmlessness.
    pub proof: Proof,
    /// Longest kernel in µs; a graph without gates inside counts as one. 0 = none is known.
    pub longest_us: u64,
    /// Its bursts.
    pub bursts: DeviceShare,
}

impl Standing {
    /// The standing of a program of which nothing is known, for a reason.
    pub fn unknown(why: &str) -> Standing {
        Standing { proof: Proof::Unknown(why.to_owned()), longest_us: 0, bursts: DeviceShare::default() }
    }

    /// Returns true if nobody inside has to fear it: it is proven, and its kernels are short.
    pub fn is_harmless(&self) -> bool {
        self.proof.is_enough() && self.longest_us <= LONG_US
    }

    /// Returns true if an urgent program of this standing belongs into the inner pool.
    pub fn belongs_inside(&self) -> bool {
        self.is_harmless() && self.bursts.is_host_bound()
    }

    /// The reason for which it must not be beside urgent programs.
    fn obstacle(&self) -> Option<String> {
        let long = || {
            let ms = self.longest_us as f64 / 1e3;
            (self.longest_us > LONG_US).then(|| format!("its kernels take up to {ms:.1} ms"))
        };
        if self.proof.is_enough() { long() } else { Some(self.proof.text()) }
    }
}

/// A program that is about to touch a GPU, and all that its place depends on.
#[derive(Clone, Debug)]
pub struct Asking<'a> {
    /// Class that it will have.
    pub class: Class,
    /// True if a pool was asked for by name.
    pub insists: bool,
    /// True in a container.
    pub is_contained: bool,
    /// False where the configuration forbids pools.
    pub may_pool: bool,
    /// Highest class that pools are for.
    pub max_class: Class,
    /// The program's own reason against a pool, in one line.
    pub obstacle: Option<&'a str>,
    /// A policy in force under which programs take turns.
    pub turns: Option<&'a str>,
    /// The reason for which it does not suit others of a pool, as was learned.
    pub unsuitable: Option<&'a str>,
    /// The reason for which this machine has no pools.
    pub impossible: Option<&'a str>,
    /// The reason for which the inner pool takes none in.
    pub inner_refused: Option<&'a str>,
    /// The reason for which the outer pool takes none in.
    pub outer_refused: Option<&'a str>,
    /// The place of urgent programs.
    pub urgent: Urgent,
    /// True if an urgent program of its user is inside, or one is known that belongs there.
    pub has_urgent: bool,
    /// Standing by earlier runs.
    pub standing: &'a Standing,
}

/// The place of a program on a GPU, with the reason in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The inner pool.
    Inner(String),
    /// The outer pool.
    Outer(String),
    /// A context of its own. None: nobody needs to be told why.
    Time(Option<String>),
}

/// Beginning of the lines that tell an urgent program why it is in no pool.
pub const OUTSIDE: &str = "outside the inner pool: ";

impl Asking<'_> {
    /// Returns true for a program of a class above those that pools are for.
    pub fn is_urgent(&self) -> bool {
        self.class > self.max_class
    }

    /// Returns true if its place may depend on what is known of it: nothing stands against a pool, and nobody has decided.
    pub fn depends_on_trust(&self) -> bool {
        let may_pool = !self.is_contained && self.may_pool && self.obstacle.is_none() && self.impossible.is_none();
        let is_open = match self.urgent {
            Urgent::Outside => false,
            Urgent::Inside => !self.is_urgent(),
            Urgent::Auto => !self.is_urgent() || !self.insists,
        };
        may_pool && is_open && (self.turns.is_none() || self.insists)
    }

    /// The place of this program.
    pub fn place(&self) -> Placement {
        let of_insisting = |why: &str| Placement::Time(self.insists.then(|| why.to_owned()));
        if self.is_contained {
            return of_insisting("programs of containers are in no pool: its server is outside");
        }
        if !self.may_pool {
            return of_insisting("the configuration forbids pools");
        }
        if self.is_urgent() && self.urgent == Urgent::Outside {
            return of_insisting(&format!("class {} stays out of pools", self.class));
        }
        // An urgent program is outside as long as nothing speaks for a pool: no news.
        let is_news = !self.is_urgent() || self.insists || self.urgent == Urgent::Inside;
        let time = |why: &str| Placement::Time(is_news.then(|| why.to_owned()));
        if let Some(why) = self.obstacle {
            return time(why);
        }
        if let Some(policy) = self.turns.filter(|_| !self.insists) {
            return time(&format!("under the policy {policy} programs take turns"));
        }
        if self.is_urgent() { self.place_of_urgent(time) } else { self.place_of_others() }
    }

    fn place_of_urgent(&self, time: impl Fn(&str) -> Placement) -> Placement {
        if let Some(why) = self.impossible {
            return time(why);
        }
        let inner = |why: String| match self.inner_refused {
            Some(refused) => Placement::Time(Some(refused.to_owned())),
            None => Placement::Inner(why),
        };
        if self.urgent == Urgent::Inside {
            return inner("urgent programs are inside (urgent = \"inside\")".to_owned());
        }
        if self.insists {
            return inner("asked for by --share pool".to_owned());
        }
        let unsuitable = self.unsuitable.map(str::to_owned);
        let why = unsuitable.or_else(|| self.standing.obstacle()).or_else(|| self.standing.bursts.obstacle());
        match why {
            Some(why) => Placement::Time(Some(format!("{OUTSIDE}{why}"))),
            None => inner(self.standing.proof.text()),
        }
    }

    fn place_of_others(&self) -> Placement {
        let time = |why: &str| Placement::Time(Some(why.to_owned()));
        if let Some(why) = self.unsuitable.filter(|_| !self.insists).or(self.impossible) {
            return time(why);
        }
        let is_there = match self.urgent {
            Urgent::Outside => false,
            Urgent::Inside => true,
            Urgent::Auto => self.has_urgent,
        };
        let against = if is_there {
            let unsuitable = self.unsuitable.map(str::to_owned);
            let refused = || self.inner_refused.map(str::to_owned);
            unsuitable.or_else(|| self.standing.obstacle()).or_else(refused)
        } else {
            Some("no urgent program of this user belongs inside".to_owned())
        };
        match (against, self.outer_refused) {
            (None, _) => Placement::Inner(self.standing.proof.text()),
            (Some(_), Some(why)) => time(why),
            (Some(why), None) => Placement::Outer(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST_BOUND: DeviceShare = DeviceShare { bursts: HOST_BOUND_BURSTS, percent: HOST_BOUND_PERCENT };
    const DEVICE_BOUND: DeviceShare = DeviceShare { bursts: 1_000, percent: 93 };

    fn standing(minutes: u64, longest_us: u64, bursts: DeviceShare) -> Standing {
        let proof = if minutes < 10 { Proof::Unproven { minutes, of: 10 } } else { Proof::Proven { minutes } };
        Standing { proof, longest_us, bursts }
    }

    fn asking(class: Class, standing: &Standing) -> Asking<'_> {
        Asking {
            class,
            insists: false,
            is_contained: false,
            may_pool: true,
            max_class: Class::Normal,
            obstacle: None,
            turns: None,
            unsuitable: None,
            impossible: None,
            inner_refused: None,
            outer_refused: None,
            urgent: Urgent::Auto,
            has_urgent: false,
            standing,
        }
    }

    fn inner(why: &str) -> Placement {
        Placement::Inner(why.to_owned())
    }

    fn outer(why: &str) -> Placement {
        Placement::Outer(why.to_owned())
    }

    fn time(why: &str) -> Placement {
        Placement::Time(Some(why.to_owned()))
    }

    #[test]
    fn an_urgent_program_is_inside_if_it_is_proven_and_its_host_the_bottleneck_or_it_was_asked_for() {
        use Urgent::{Auto, Inside, Outside};
        let good = standing(14, 300, HOST_BOUND);
        let (young, long) = (standing(4, 300, HOST_BOUND), standing(14, LONG_US + 1, HOST_BOUND));
        let (bound, new) = (standing(14, 300, DEVICE_BOUND), standing(14, 300, DeviceShare::default()));
        let proven = inner("proven: 14 min without a GPU fault");
        let asked = inner("asked for by --share pool");
        let inside = inner("urgent programs are inside (urgent = \"inside\")");
        let no_bursts =
            "outside the inner pool: not known yet whether the device is its bottleneck: 0 of 50 requests seen";
        for (urgent, insists, standing, expected) in [
            (Outside, false, &good, Placement::Time(None)),
            (Outside, true, &good, time("class high stays out of pools")),
            (Inside, false, &young, inside.clone()),
            (Inside, true, &bound, inside),
            (Auto, false, &good, proven),
            (Auto, false, &young, time("outside the inner pool: not proven yet: 4 of 10 min without a GPU fault")),
            (Auto, false, &long, time("outside the inner pool: its kernels take up to 2.0 ms")),
            (Auto, false, &bound, time("outside the inner pool: the device is its bottleneck (93 % of its requests)")),
            (Auto, false, &new, time(no_bursts)),
            (Auto, true, &young, asked.clone()),
            (Auto, true, &bound, asked),
        ] {
            let asking = Asking { urgent, insists, ..asking(Class::High, standing) };
            assert_eq!(asking.place(), expected, "{urgent:?} {insists} {standing:?}");
        }
        let waived = Standing { proof: Proof::Waived, ..good.clone() };
        assert_eq!(asking(Class::High, &waived).place(), inner("no proof is asked for (proven_minutes = 0)"));
        let refused = Asking { inner_refused: Some("full"), ..asking(Class::High, &good) };
        assert_eq!(refused.place(), time("full"));
        let faulty = Asking { unsuitable: Some("faults"), ..asking(Class::High, &good) };
        assert_eq!(faulty.place(), time("outside the inner pool: faults"));
        let higher = Asking { max_class: Class::High, has_urgent: true, ..asking(Class::High, &bound) };
        assert_eq!(
            higher.place(),
            inner("proven: 14 min without a GPU fault"),
            "no urgent program by this configuration"
        );
    }

    #[test]
    fn others_are_inside_if_they_are_proven_and_short_and_an_urgent_program_belongs_there() {
        use Urgent::{Auto, Inside, Outside};
        let good = standing(14, LONG_US, DEVICE_BOUND);
        let (young, long) = (standing(3, 300, HOST_BOUND), standing(14, 4_240, HOST_BOUND));
        let proven = inner("proven: 14 min without a GPU fault");
        let alone = outer("no urgent program of this user belongs inside");
        for (urgent, has_urgent, standing, expected) in [
            (Auto, true, &good, proven.clone()),
            (Auto, false, &good, alone.clone()),
            (Inside, false, &good, proven.clone()),
            (Outside, true, &good, alone),
            (Auto, true, &young, outer("not proven yet: 3 of 10 min without a GPU fault")),
            (Inside, true, &long, outer("its kernels take up to 4.2 ms")),
            (Auto, true, &Standing::unknown("x"), outer("not proven: x")),
        ] {
            for class in [Class::Low, Class::Normal] {
                let asking = Asking { urgent, has_urgent, ..asking(class, standing) };
                assert_eq!(asking.place(), expected, "{urgent:?} {has_urgent} {standing:?}");
            }
        }
        let beside = Asking { has_urgent: true, ..asking(Class::Low, &good) };
        let unsuitable = Asking { unsuitable: Some("faults"), ..beside.clone() };
        assert_eq!(unsuitable.place(), time("faults"));
        assert_eq!(
            Asking { insists: true, ..unsuitable }.place(),
            outer("faults"),
            "its user's risk, not that of others"
        );
        // Another pool may have a place for a program that one refuses.
        let full = Asking { inner_refused: Some("full"), ..beside.clone() };
        assert_eq!(full.place(), outer("full"));
        assert_eq!(Asking { outer_refused: Some("broken"), ..full }.place(), time("broken"));
        assert_eq!(Asking { outer_refused: Some("broken"), ..beside }.place(), proven);
        let without = Asking { outer_refused: Some("broken"), ..asking(Class::Low, &good) };
        assert_eq!(without.place(), time("broken"));
    }

    #[test]
    fn what_stands_against_any_pool_counts_first_and_is_no_news_to_urgent_programs() {
        let (good, none) = (standing(14, 300, HOST_BOUND), Placement::Time(None));
        for class in [Class::Normal, Class::High] {
            let is_urgent = class == Class::High;
            let quiet = |why: &str| if is_urgent { Placement::Time(None) } else { time(why) };
            let base = Asking { has_urgent: true, ..asking(class, &good) };
            let insisting = Asking { insists: true, ..base.clone() };
            for (with, expected, insisted) in [
                (
                    Asking { is_contained: true, ..base.clone() },
                    none.clone(),
                    "programs of containers are in no pool: its server is outside",
                ),
                (Asking { may_pool: false, ..base.clone() }, none.clone(), "the configuration forbids pools"),
                (Asking { obstacle: Some("a debugger"), ..base.clone() }, quiet("a debugger"), "a debugger"),
                (Asking { impossible: Some("no MPS"), ..base.clone() }, quiet("no MPS"), "no MPS"),
            ] {
                assert_eq!(with.place(), expected, "{class}");
                assert_eq!(Asking { insists: true, ..with }.place(), time(insisted), "{class}");
            }
            let turns = Asking { turns: Some("up"), ..base };
            assert_eq!(turns.place(), quiet("under the policy up programs take turns"), "{class}");
            assert!(matches!(Asking { turns: Some("up"), ..insisting }.place(), Placement::Inner(_)), "{class}");
        }
        let inside = Asking { urgent: Urgent::Inside, impossible: Some("no MPS"), ..asking(Class::High, &good) };
        assert_eq!(inside.place(), time("no MPS"), "news: the operator wants it inside");
    }
}
