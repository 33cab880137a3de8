//! Arbitrary data, cut into pieces.

/// Takes a piece off the front of the data: the first byte is its length. Returns none at the end of the data.
pub(crate) fn piece<'a>(data: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = data.split_first()?;
    let (piece, rest) = rest.split_at(rest.len().min(usize::from(*length)));
    *data = rest;
    Some(piece)
}
