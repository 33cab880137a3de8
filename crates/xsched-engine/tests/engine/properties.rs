//! Rules that hold whatever programs, commands and the host do. The same cases each time; `PROPTEST_RNG_SEED=2 PROPTEST_CASES=60000` tries
//! others, and more.

use crate::support::script::{play, play_and_watch};
use crate::support::{OWN, World, arrival, new_group};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use xsched_engine::{Changes, Effect, Input, Inventory, Message, Order, Sender, Terms, What};
use xsched_policy::ProgramId;
use xsched_proto::wire::{DaemonMsg, Target};

/// Bytes of a script, shown in one line.
#[derive(Clone)]
struct Data(Vec<u8>);

impl std::fmt::Debug for Data {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hex: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        write!(f, "{hex}")
    }
}

fn bytes() -> impl Strategy<Value = Data> {
    proptest::collection::vec(any::<u8>(), 0..3_000).prop_map(Data)
}

/// A found case: groups and queues of the first one were of no program then, and stayed for ever.
#[test]
fn a_second_program_with_the_number_of_another_is_ignored() {
    let mut w = World::new();
    let client = w.attach(0);
    w.group(&client, 0, "sim:0");
    w.queue(&client, 0, 0);
    w.input(Input::Attached(client.id, Box::new(arrival(7, client.segment.clone()))));
    assert_eq!(w.engine.programs()[&client.id].pid, client.pid);
    w.leave(&client);
    assert_eq!(w.engine.inventory(), Inventory::default());
}

/// A found case: the refusal of the second one ended the answer to the first, which went on.
#[test]
fn a_second_order_of_a_command_that_is_carried_out_is_ignored() {
    let mut w = World::new();
    let client = w.attach(0);
    let command = w.begin_order(OWN, vec![Target::All], What::Hold(true));
    let Terms { ceilings, .. } = crate::support::terms();
    let from = Sender { command, user: OWN, pid: 1, ancestors: Vec::new(), ceilings };
    let order = Order { from, targets: vec![Target::Queue(1)], what: What::Hold(true) };
    w.input(Input::Change(Box::new(order)));
    while w.engine.is_changing(command) {
        w.go_on(command);
    }
    let ends = |effect: &&Effect| matches!(effect, Effect::Finish(id, _) if *id == command);
    assert_eq!(w.effects.iter().filter(ends).collect::<Vec<_>>(), [&Effect::Finish(command, DaemonMsg::End)]);
    assert!(w.engine.programs()[&client.id].held);
}

/// A found case: the engine did not know the book any more that the ledger went on to charge.
#[test]
fn a_book_stays_open_while_something_may_be_charged_to_it() {
    let mut w = World::new();
    let client = w.attach(0);
    w.group(&client, 0, "sim:0");
    w.ready(&client, 0);
    let close = |w: &mut World| w.input(Input::BookClosed(client.id, "sim:0".into()));
    close(&mut w);
    assert_eq!(w.engine.inventory().books, 1, "its program has a group there");
    w.pass_us(1_000);
    w.leave(&client);
    close(&mut w);
    assert_eq!(w.engine.inventory().books, 1, "its last time is not charged yet");
    let now_ns = w.now_ns;
    w.engine.gatekeeper_mut().ledger_mut().finish(now_ns);
    let account = w.engine.gatekeeper().ledger().account("sim:0", ProgramId(client.id)).expect("a book");
    assert_eq!((account.closed, account.usage.gpu_ns), (true, 1_000_000));
    close(&mut w);
    assert_eq!(w.engine.inventory(), Inventory::default());
    assert_eq!(w.engine.gatekeeper().ledger().devices().count(), 0);
}

/// A found case: the program was shown as going on, and its gates stayed closed.
#[test]
fn a_suspended_program_that_is_restored_as_going_on_goes_on() {
    let mut w = World::new();
    let client = w.attach(0);
    let restore = |w: &mut World, held| {
        w.input(Input::Restored { program: client.id, changes: Changes::default(), held });
    };
    restore(&mut w, true);
    w.say(&client, Message::GroupAdd(new_group(0, "sim:0")));
    w.ready(&client, 0);
    assert!(!client.is_open(0));
    restore(&mut w, false);
    assert!(client.is_open(0));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Nothing panics, effects are for known connections, a refusal leaves nothing behind, an interrupted group is told to go on once it is
    /// granted; and once all have left nothing is left.
    #[test]
    fn inputs_in_any_order_keep_the_books_straight(data in bytes()) {
        play(&data.0);
    }

    #[test]
    fn no_group_that_wants_its_device_starves_under_a_policy_that_users_may_choose(data in bytes()) {
        play_and_watch(&data.0);
    }
}
