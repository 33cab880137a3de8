//! Choice of the chunks that lie on the host while there is no room for all. Kernels reach these over the link, so the choice is by use: a
//! chunk that few launches name is cold, and one whose operands a kernel reads many times is hot.

#[cfg(test)]
mod tests;

/// Address that a launch named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// The address.
    pub at: u64,
    /// Heat that the launch adds to the chunk there.
    pub heat: u32,
}

/// Distance from a named address, in bytes, at which a chunk has half of its heat: arrays are seldom longer than some times that.
const HALF: u64 = 256 << 20;

/// Heat of each chunk, by the launches that named an address in it. `chunks` has addresses and sizes in bytes. A launch names where an array
/// begins and not its length, so chunks behind a hot one are hot, too, less so with the distance, as far as `joined` says of the addresses of
/// neighbours that they belong to one allocation.
pub fn heats(
    chunks: &[(u64, u64)],
    touches: impl IntoIterator<Item = Touch>,
    joined: impl Fn(u64, u64) -> bool,
) -> Vec<u32> {
    let mut order: Vec<usize> = (0..chunks.len()).collect();
    order.sort_unstable_by_key(|&n| chunks[n].0);
    let mut heat = vec![0u32; chunks.len()];
    for touch in touches {
        let after = order.partition_point(|&n| chunks[n].0 <= touch.at);
        let Some(&n) = after.checked_sub(1).and_then(|before| order.get(before)) else { continue };
        if touch.at - chunks[n].0 < chunks[n].1 {
            heat[n] = heat[n].saturating_add(touch.heat);
        }
    }
    // The hot chunk before, with its heat, and the chunk right before.
    let (mut named, mut last) = ((0, 0), None);
    for &n in &order {
        let at = chunks[n].0;
        let follows =
            last.is_some_and(|last: usize| chunks[last].0 + chunks[last].1 == at && joined(chunks[last].0, at));
        let from_before = if follows { named.1 >> ((at - named.0) / HALF).min(31) } else { 0 };
        if heat[n] >= from_before {
            named = (at, heat[n]);
        }
        heat[n] = heat[n].max(from_before);
        last = Some(n);
    }
    heat
}

/// A chunk that may be chosen: its size in bytes, and its heat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) bytes: u64,
    pub(super) heat: u32,
}

/// Numbers of the chunks that may be chosen: the coldest first, and of equals those that were added last.
fn by_heat(parts: &[Option<Part>]) -> Vec<(usize, Part)> {
    let mut found: Vec<(usize, Part)> =
        parts.iter().enumerate().filter_map(|(n, part)| Some((n, (*part)?))).rev().collect();
    found.sort_by_key(|(_, part)| part.heat);
    found
}

/// Chooses the coldest chunks, of so many bytes at least if there are.
pub(super) fn coldest(parts: &[Option<Part>], bytes: u64) -> Vec<bool> {
    let (mut chosen, mut left) = (vec![false; parts.len()], bytes);
    for (n, part) in by_heat(parts) {
        if left == 0 {
            break;
        }
        chosen[n] = true;
        left = left.saturating_sub(part.bytes);
    }
    chosen
}

/// Chooses the hottest chunks that fit into so many bytes.
pub(super) fn hottest(parts: &[Option<Part>], bytes: u64) -> Vec<bool> {
    let (mut chosen, mut left) = (vec![false; parts.len()], bytes);
    for (n, part) in by_heat(parts).into_iter().rev() {
        if part.bytes <= left {
            chosen[n] = true;
            left -= part.bytes;
        }
    }
    chosen
}

/// Chooses chunks of the device and of the host that change places: at most so many bytes come from the host, no more than go. A chunk that comes
/// is more than twice as hot as each that makes room for it, so that chunks which are used alike stay where they are.
pub(super) fn exchange(device: &[Option<Part>], host: &[Option<Part>], bytes: u64) -> (Vec<bool>, Vec<bool>) {
    let (mut goes, mut comes) = (vec![false; device.len()], vec![false; host.len()]);
    let (mut cold, mut room, mut left) = (by_heat(device).into_iter().peekable(), 0, bytes);
    for (n, hot) in by_heat(host).into_iter().rev() {
        if hot.bytes > left {
            continue;
        }
        while room < hot.bytes
            && let Some((n, part)) = cold.next_if(|(_, part)| part.heat < hot.heat / 2)
        {
            goes[n] = true;
            room += part.bytes;
        }
        if room < hot.bytes {
            break;
        }
        comes[n] = true;
        room -= hot.bytes;
        left -= hot.bytes;
    }
    (goes, comes)
}
