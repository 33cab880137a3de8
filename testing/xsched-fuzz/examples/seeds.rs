//! Writes the binary seeds of `corpus/`: `cargo run -p xsched-fuzz --example seeds`, after the protocol or the format of journals has
//! changed.

#[path = "../../../crates/xsched-engine/tests/engine/support/mod.rs"]
mod support;

use std::fs;
use std::io::Read;
use std::path::Path;

use xsched_flow::journal::replay;
use xsched_proto::wire::{ClientMsg, DaemonMsg, Levels, Platform, ProgramOptions, Request, Sharing, encode};
use xsched_proto::{Error, PROTOCOL_VERSION};
use xsched_testkit::Random;

use support::script::{Script, play};

/// Size of a seed taken from the beginning of a journal, in bytes.
const JOURNAL_BYTES: usize = 1500;

fn main() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let write = |target: &str, name: &str, bytes: &[u8]| {
        let folder = corpus.join(target);
        fs::create_dir_all(&folder).expect("a folder for seeds");
        fs::write(folder.join(name), bytes).expect("a file for a seed");
    };
    for (name, packet) in packets() {
        write("packets", name, &packet);
    }
    for (name, script) in scripts() {
        write("connection", name, &script);
    }
    for (name, script) in scripts_of_words() {
        write("segment", name, &script);
    }
    for (name, script) in scripts_of_an_engine() {
        write("daemon", name, &script);
    }
    for (name, script) in scripts_of_a_daemon() {
        write("library", name, &script);
    }
    let refused = encode(&DaemonMsg::Refused(Error::Input("no".into()))).expect("small");
    let end = encode(&DaemonMsg::End).expect("small");
    write("answers", "refused", &with_length(&refused));
    write("answers", "nothing", &with_length(&end));
    write(
        "answers",
        "two",
        &[with_length(&encode(&DaemonMsg::ByTime { why: None }).expect("small")), with_length(&end)].concat(),
    );
    for (name, beginning) in journals() {
        write("journal", &name, &beginning);
    }
}

fn with_length(packet: &[u8]) -> Vec<u8> {
    [&[u8::try_from(packet.len()).expect("a short packet")], packet].concat()
}

fn packets() -> Vec<(&'static str, Vec<u8>)> {
    let options = ProgramOptions { priority: Some(3), job: Some("j".into()), threshold: Some(4), ..Default::default() };
    let more = ProgramOptions { level: Some(1), batch: Some(2), ..options.clone() };
    let group = ClientMsg::GroupAdd {
        slot: 1,
        device: "pci:0000:41:00.0".into(),
        platform: Platform::Cuda,
        priority_steps: -2,
        priority_fixed: Some(7),
        system: true,
        levels: Levels::ONE,
        sharing: Sharing::Pool,
    };
    let of_client = [
        ("hello", ClientMsg::Hello { version: PROTOCOL_VERSION, options }),
        ("hello-more", ClientMsg::Hello { version: PROTOCOL_VERSION, options: more }),
        ("ps", ClientMsg::Control { version: PROTOCOL_VERSION, request: Request::Ps }),
        ("group", group),
        ("queue", ClientMsg::QueueAdd { slot: 700, group: 1 }),
    ];
    let mut all: Vec<_> =
        of_client.iter().map(|(name, message)| (*name, encode(message).expect("a small packet"))).collect();
    let refused = DaemonMsg::Refused(Error::Environment("no".into()));
    all.push(("refused", encode(&refused).expect("a small packet")));
    all.push(("by-time", encode(&DaemonMsg::ByTime { why: Some("why".into()) }).expect("a small packet")));
    all
}

/// Seeds of `src/daemon.rs`: the first random bytes that lead an engine to several groups, queues, pages or commands.
fn scripts_of_an_engine() -> Vec<(&'static str, Vec<u8>)> {
    let first = |comes_to: fn(&Script<'_>) -> bool| {
        let bytes = |seed| {
            let mut random = Random(seed);
            (0..600).map(|_| random.below(256) as u8).collect::<Vec<u8>>()
        };
        (0..).map(bytes).find(|bytes| comes_to(&play(&bytes[1..]))).expect("numbers without end")
    };
    let mut watched = first(|script| script.most.groups >= 5);
    watched[0] = 0;
    vec![
        ("groups", first(|script| script.most.groups >= 4 && script.most.queues >= 3)),
        ("pages", first(|script| script.most.pages >= 1)),
        ("commands", first(|script| script.most.commands >= 2 && script.most.groups >= 3)),
        ("watched", watched),
    ]
}

/// Seeds of `src/connection.rs`.
fn scripts() -> Vec<(&'static str, Vec<u8>)> {
    let ps = encode(&ClientMsg::Control { version: PROTOCOL_VERSION, request: Request::Ps }).expect("a small packet");
    vec![
        ("attach", vec![0, 6, 1, 0, 0x41, 0, 6, 2, 0, 0, 4]),
        ("words", vec![0, 1, 0, 0x41, 0, 2, 3, 0, 3, 0x50, 4, 1, 0, 0, 0, 4, 6, 3, 0x60, 4, 0xff, 0xff, 0xff, 0xff, 4]),
        ("descriptors", vec![5, 3, 5, 9, 0, 5, 17]),
        ("ps", [&[7][..], &with_length(&ps), &[6, 0]].concat()),
    ]
}

/// Seeds of `src/segment.rs`.
fn scripts_of_words() -> Vec<(&'static str, Vec<u8>)> {
    let (group, queue_5, wants, ps, page) = ([0, 0, 0], [1, 5, 0], [4, 0, 0], [5], [6]);
    let used = |queues: u8| [2, 0, 0, 0, queues, 0, 0, 0];
    let later = |steps: u8, queues: u8| [3, steps, 0, 0, 0, queues, 0, 0, 0];
    // The word of queue 5 that names its group.
    let of_group = [2, 4, 5, 0, 1, 0, 0, 0];
    // More counters than there are, and the first of them of a queue beyond the used ones.
    let counters = [[2, 1, 0, 0, 0xff, 0xff, 0xff, 0xff], [2, 5, 0, 0, 0xff, 0x7f, 0, 0]].concat();
    let known = [&group[..], &queue_5, &used(6), &of_group, &counters].concat();
    let read = [&wants[..], &ps, &page].concat();
    vec![
        ("unused", [&[1][..], &group, &queue_5, &wants, &ps].concat()),
        ("known", [&[1][..], &known, &read].concat()),
        ("known-to-groups", [&[0][..], &known, &read].concat()),
        ("fewer", [&[1][..], &known, &later(2, 0), &wants, &ps, &later(1, 6), &later(0, 0), &page].concat()),
    ]
}

/// Seeds of `src/library.rs`.
fn scripts_of_a_daemon() -> Vec<(&'static str, Vec<u8>)> {
    let note = encode(&DaemonMsg::Note { text: "a note".into() }).expect("small");
    vec![
        ("group", vec![0, 0, 1, 5, 0, 0, 1, 0, 0, 0, 4, 7, 5, 0, 1, 0xe8, 3, 0, 0]),
        ("priority", vec![0, 0, 1, 1, 0, 9, 0, 1, 2]),
        ("interrupt", vec![0, 0, 1, 2, 0, 1, 2, 0, 0, 3, 0, 200]),
        ("note", [&[7][..], &with_length(&note)].concat()),
        ("page", [&[6, 64, 0x1f][..], &with_length(&note)].concat()),
    ]
}

/// Beginnings of two journals, cut after a whole record.
fn journals() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/journals");
    let mut paths: Vec<_> = fs::read_dir(folder).expect("the journals").flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "gz"));
    paths.sort();
    let beginning = |path: &std::path::PathBuf| {
        let mut whole = Vec::new();
        let file = fs::File::open(path).expect("a journal");
        flate2::read::GzDecoder::new(file).take(JOURNAL_BYTES as u64).read_to_end(&mut whole).expect("gzip");
        let end = (0..=whole.len()).rev().find(|end| replay(&whole[..*end]).is_ok()).expect("a whole record");
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        (name, whole[..end].to_vec())
    };
    paths.iter().step_by(paths.len().div_ceil(2)).map(beginning).collect()
}
