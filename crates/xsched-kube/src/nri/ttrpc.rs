//! The part of ttrpc for calls without streams. A frame has a header of 10 bytes: length and stream, big-endian, kind,
//! flags.
//!
//! The crate `ttrpc` expects one end to make all calls, and uses another library for messages; here calls go both ways
//! over one socket.
#![allow(missing_docs)]

use std::io::{Error, Result};

use prost::Message;

/// Length of a frame's header, in bytes.
pub const HEADER_BYTES: usize = 10;
/// Longest data of a frame, in bytes.
pub const DATA_MAX_BYTES: usize = 4 << 20;

/// Status codes of gRPC.
pub const INVALID_ARGUMENT: i32 = 3;
pub const FAILED_PRECONDITION: i32 = 9;
pub const UNIMPLEMENTED: i32 = 12;

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Request = 1,
    Response = 2,
}

/// A message on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub stream: u32,
    pub kind: Kind,
    pub data: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Request {
    #[prost(string, tag = "1")]
    pub service: String,
    #[prost(string, tag = "2")]
    pub method: String,
    #[prost(bytes = "vec", tag = "3")]
    pub payload: Vec<u8>,
    #[prost(int64, tag = "4")]
    pub timeout_nano: i64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Response {
    #[prost(message, optional, tag = "1")]
    pub status: Option<Status>,
    #[prost(bytes = "vec", tag = "2")]
    pub payload: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Status {
    #[prost(int32, tag = "1")]
    pub code: i32,
    #[prost(string, tag = "2")]
    pub message: String,
}

impl Request {
    pub fn new(service: &str, method: &str, message: &impl Message) -> Request {
        Request {
            service: service.to_owned(),
            method: method.to_owned(),
            payload: message.encode_to_vec(),
            timeout_nano: 0,
        }
    }

    /// Decodes the message of the request.
    pub fn read<M: Message + Default>(&self) -> std::result::Result<M, prost::DecodeError> {
        M::decode(self.payload.as_slice())
    }
}

impl Response {
    pub fn failed(code: i32, message: String) -> Response {
        Response { status: Some(Status { code, message }), payload: Vec::new() }
    }
}

impl Frame {
    pub fn request(stream: u32, request: &Request) -> Frame {
        Frame { stream, kind: Kind::Request, data: request.encode_to_vec() }
    }

    pub fn response(stream: u32, response: &Response) -> Frame {
        Frame { stream, kind: Kind::Response, data: response.encode_to_vec() }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES + self.data.len());
        out.extend((self.data.len() as u32).to_be_bytes());
        out.extend(self.stream.to_be_bytes());
        out.extend([self.kind as u8, 0]);
        out.extend(&self.data);
        out
    }

    /// Removes the first frame from the received bytes, if it is complete.
    pub fn take(from: &mut Vec<u8>) -> Result<Option<Frame>> {
        let Some(&[a, b, c, d, w, x, y, z, kind, _flags]) = from.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if length > DATA_MAX_BYTES {
            return Err(Error::other(format!("a frame of {length} bytes")));
        }
        let kind = match kind {
            1 => Kind::Request,
            2 => Kind::Response,
            other => return Err(Error::other(format!("a frame of kind {other}"))),
        };
        if from.len() < HEADER_BYTES + length {
            return Ok(None);
        }
        let data = from[HEADER_BYTES..HEADER_BYTES + length].to_vec();
        from.drain(..HEADER_BYTES + length);
        Ok(Some(Frame { stream: u32::from_be_bytes([w, x, y, z]), kind, data }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_taken_once_it_is_whole_and_is_what_the_protocol_describes() {
        let frame = Frame { stream: 3, kind: Kind::Response, data: vec![7, 8] };
        let bytes = frame.bytes();
        assert_eq!(bytes, [0, 0, 0, 2, 0, 0, 0, 3, 2, 0, 7, 8]);
        let mut come = Vec::new();
        for byte in &bytes[..bytes.len() - 1] {
            come.push(*byte);
            assert_eq!(Frame::take(&mut come).unwrap(), None);
        }
        come.extend([8, 1]);
        assert_eq!(Frame::take(&mut come).unwrap(), Some(frame));
        assert_eq!(come, [1]);
        assert!(Frame::take(&mut vec![1, 0, 0, 0, 0, 0, 0, 1, 1, 0]).is_err(), "16 MiB");
        assert!(Frame::take(&mut vec![0, 0, 0, 0, 0, 0, 0, 1, 3, 0]).is_err(), "a stream");
    }
}
