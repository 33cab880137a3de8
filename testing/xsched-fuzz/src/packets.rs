//! Fuzz target for packets of both sides: each packet that can be decoded is encoded to the same bytes.

use std::fmt::Debug;

use xsched_proto::wire::{ClientMsg, DaemonMsg, decode, encode, version_of};

pub(crate) fn run(data: &[u8]) {
    let _ = version_of(data);
    again::<DaemonMsg>(data);
    let read = again::<ClientMsg>(data);
    crate::planted::planted(|| {
        let Some(ClientMsg::Hello { options, .. }) = read else { return false };
        options.batch.is_some() && options.level.is_some() && options.job.is_some_and(|job| job.len() >= 2)
    });
}

fn again<T: serde::Serialize + serde::de::DeserializeOwned + Debug>(data: &[u8]) -> Option<T> {
    let message: T = decode(data).ok()?;
    let written = encode(&message).expect("what fits into a packet fits into one again");
    let read: T = decode(&written).expect("what is written can be read");
    assert_eq!(format!("{read:?}"), format!("{message:?}"));
    Some(message)
}
