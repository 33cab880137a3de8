//! Writer for the wire format of protocol buffers: the three kinds of field that a trace needs.
//!
//! Messages are only written, never read, and use some thirty fields of Perfetto's interface. This module is shorter than their
//! declarations for a code generator would be, and needs no compiler of `.proto` files.

/// Message under construction.
#[derive(Default)]
pub(in crate::cmd) struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// Adds a number of a type uint32, uint64, int64 (if not negative), bool or enumeration.
    pub(in crate::cmd) fn number(mut self, field: u32, value: u64) -> Message {
        self.varint(u64::from(field) << 3);
        self.varint(value);
        self
    }

    /// Adds a number of type fixed64.
    pub(in crate::cmd) fn fixed(mut self, field: u32, value: u64) -> Message {
        self.varint(u64::from(field) << 3 | 1);
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Adds a text.
    pub(in crate::cmd) fn text(self, field: u32, value: &str) -> Message {
        self.delimited(field, value.as_bytes())
    }

    /// Adds a message.
    pub(in crate::cmd) fn message(self, field: u32, value: Message) -> Message {
        self.delimited(field, &value.bytes)
    }

    /// Bytes of the message.
    pub(in crate::cmd) fn into_bytes(self) -> Vec<u8> {
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

    /// Tests the examples in the format's own description.
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
