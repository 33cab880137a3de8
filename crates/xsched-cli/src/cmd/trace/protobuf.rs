//! Writing of protocol buffers' wire format: the three kinds of field that a trace needs.
//!
//! A message is written once, nothing is read, and of Perfetto's interface some thirty fields are used. This is shorter than their
//! declarations for a code generator would be, and needs no compiler of `.proto` files to build the command.

/// A message under construction.
#[derive(Default)]
pub(super) struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// A number: of the types uint32, uint64, int64 (where not negative), bool and enumerations.
    pub(super) fn number(mut self, field: u32, value: u64) -> Message {
        self.varint(u64::from(field) << 3);
        self.varint(value);
        self
    }

    /// A number of the type fixed64.
    pub(super) fn fixed(mut self, field: u32, value: u64) -> Message {
        self.varint(u64::from(field) << 3 | 1);
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// A text.
    pub(super) fn text(self, field: u32, value: &str) -> Message {
        self.delimited(field, value.as_bytes())
    }

    /// A message within.
    pub(super) fn message(self, field: u32, value: Message) -> Message {
        self.delimited(field, &value.bytes)
    }

    /// Its bytes.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn delimited(mut self, field: u32, value: &[u8]) -> Message {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(value.len() as u64);
        self.bytes.extend_from_slice(value);
        self
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the format's own description.
    #[test]
    fn fields_are_written_as_the_format_says() {
        assert_eq!(Message::default().number(1, 150).into_bytes(), [0x08, 0x96, 0x01]);
        assert_eq!(Message::default().text(2, "testing").into_bytes(), *b"\x12\x07testing");
        let inner = Message::default().number(1, 150);
        assert_eq!(Message::default().message(3, inner).into_bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        assert_eq!(Message::default().fixed(47, 1).into_bytes(), [0xf9, 0x02, 1, 0, 0, 0, 0, 0, 0, 0]);
        let most = Message::default().number(1, u64::MAX).into_bytes();
        assert_eq!(most, [[0x08].as_slice(), &[0xff; 9], &[0x01]].concat());
    }
}
