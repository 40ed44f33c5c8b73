//! The part of gRPC that a device plugin needs: one message in, one message or a stream out, over HTTP/2 on a Unix socket.
//!
//! A message is a byte (compressed or not), its length in four bytes, and its content. The trailers contain the status of a call:
//! <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>.

use std::convert::Infallible;
use std::fmt;
use std::path::Path;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::stream;
use futures_util::{Stream, StreamExt as _};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::{Body, Frame};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, TE};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode, utf8_percent_encode};
use prost::Message;
use tokio::net::UnixStream;

/// A kubelet that allocates a thousand devices names them in 16 kB.
const MAX_BYTES: usize = 4 << 20;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const STATUS: &str = "grpc-status";
const MESSAGE: &str = "grpc-message";

/// `grpc-message` is printable ASCII; all other bytes and the percent sign are encoded.
const MESSAGE_ENCODE_SET: &AsciiSet = &CONTROLS.add(b'%');

/// The response of a call.
pub(super) type GrpcResponse = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Error codes of gRPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    Unknown = 2,
    InvalidArgument = 3,
    Unimplemented = 12,
    Unavailable = 14,
}

/// The status of a call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) code: u32,
    pub(super) message: String,
}

impl Status {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code: code as u32, message: message.into() }
    }

    /// A call without an answer.
    fn unavailable(error: impl fmt::Display) -> Self {
        Self::new(Code::Unavailable, error.to_string())
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (gRPC code {})", self.message, self.code)
    }
}

/// Reads the only message of a body.
pub(super) async fn read_message<M: Message + Default>(
    body: impl Body<Data = Bytes, Error: std::error::Error + Send + Sync + 'static>,
) -> Result<M, Status> {
    let body = Limited::new(body, MAX_BYTES).collect().await.map_err(Status::unavailable)?;
    decode(&body.to_bytes())
}

fn decode<M: Message + Default>(bytes: &[u8]) -> Result<M, Status> {
    let invalid = |message: &str| Status::new(Code::InvalidArgument, message);
    let Some(([compressed, length @ ..], content)) = bytes.split_first_chunk::<5>() else {
        return Err(invalid("the message is missing"));
    };
    if *compressed != 0 {
        return Err(Status::new(Code::Unimplemented, "compressed messages are not supported"));
    }
    if u32::try_from(content.len()) != Ok(u32::from_be_bytes(*length)) {
        return Err(invalid("the body is not one message"));
    }
    M::decode(content).map_err(|error| invalid(&error.to_string()))
}

fn encode(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(length + 5);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    bytes.put_slice(&message.encode_to_vec());
    bytes.freeze()
}

/// Creates a response of one message, or of a status.
pub(super) fn respond(result: Result<impl Message + 'static, Status>) -> GrpcResponse {
    match result {
        Ok(message) => respond_stream(stream::iter([message])),
        Err(status) => failure(&status),
    }
}

/// Creates a response of a stream. It succeeds when the stream ends.
pub(super) fn respond_stream<M: Message + 'static>(
    messages: impl Stream<Item = M> + Send + 'static,
) -> GrpcResponse {
    let mut success = HeaderMap::new();
    success.insert(STATUS, HeaderValue::from_static("0"));
    let frames =
        messages.map(|message| Frame::data(encode(&message))).chain(stream::iter([Frame::trailers(success)]));
    let mut response = Response::new(StreamBody::new(frames.map(Ok::<_, Infallible>)).boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response
}

/// Creates a response without a body, with the status in the headers.
pub(super) fn failure(status: &Status) -> GrpcResponse {
    let mut response = Response::new(Full::new(Bytes::new()).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, GRPC);
    headers.insert(STATUS, HeaderValue::from(status.code));
    if let Ok(message) = HeaderValue::from_str(&encode_message(&status.message)) {
        headers.insert(MESSAGE, message);
    }
    response
}

/// Calls a method of the server at a socket.
pub(super) async fn call<M: Message + Default>(
    socket: &Path,
    path: &'static str,
    message: &impl Message,
) -> Result<M, Status> {
    let stream = UnixStream::connect(socket).await.map_err(Status::unavailable)?;
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(Status::unavailable)?;
    let exchange = async {
        let request = Request::post(format!("http://localhost{path}"))
            .header(CONTENT_TYPE, GRPC)
            .header(TE, "trailers")
            .body(Full::new(encode(message)))
            .map_err(Status::unavailable)?;
        let (head, body) = sender.send_request(request).await.map_err(Status::unavailable)?.into_parts();
        if let Some(status) = error_status(&head.headers) {
            return Err(status);
        }
        let body = Limited::new(body, MAX_BYTES).collect().await.map_err(Status::unavailable)?;
        match body.trailers().and_then(error_status) {
            Some(status) => Err(status),
            None => decode(&body.to_bytes()),
        }
    };
    // The connection does the work of the exchange, and is closed with this call.
    tokio::pin!(connection);
    tokio::select! {
        result = exchange => result,
        result = &mut connection => {
            Err(Status::unavailable(result.err().map_or_else(|| "the connection was closed".to_owned(), |error| error.to_string())))
        }
    }
}

/// Returns the status in headers or trailers, unless it is a success or missing.
fn error_status(headers: &HeaderMap) -> Option<Status> {
    let status = headers.get(STATUS)?;
    let code = status.to_str().ok().and_then(|code| code.parse().ok()).unwrap_or(Code::Unknown as u32);
    let message = headers.get(MESSAGE).map(|message| decode_message(message.as_bytes())).unwrap_or_default();
    (code != 0).then_some(Status { code, message })
}

fn encode_message(text: &str) -> String {
    utf8_percent_encode(text, MESSAGE_ENCODE_SET).to_string()
}

fn decode_message(bytes: &[u8]) -> String {
    percent_decode(bytes).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::api::{Empty, Options};
    use super::*;

    #[test]
    fn encodes_and_decodes_a_message() {
        let options = Options { pre_start_required: false, get_preferred_allocation_available: true };
        let bytes = encode(&options);
        assert_eq!(&bytes[..], b"\0\0\0\0\x02\x10\x01");
        assert_eq!(decode::<Options>(&bytes), Ok(options));
        assert_eq!(decode::<Empty>(b"\0\0\0\0\0"), Ok(Empty {}));
    }

    #[test]
    fn rejects_malformed_messages() {
        let frames: [&[u8]; 6] =
            [b"", b"\0\0\0", b"\0\0\0\0\x01", b"\0\xff\xff\xff\xff", b"\0\0\0\0\0\0", b"\0\0\0\0\x02\x10"];
        for frame in frames {
            let status = decode::<Options>(frame).unwrap_err();
            assert_eq!(status.code, Code::InvalidArgument as u32, "{frame:?}");
        }
        assert_eq!(decode::<Empty>(b"\x01\0\0\0\0").unwrap_err().code, Code::Unimplemented as u32);
    }

    #[test]
    fn a_header_carries_any_text() {
        for text in ["plain", "100 % \u{fc}ber\n", "%41", ""] {
            assert_eq!(decode_message(encode_message(text).as_bytes()), text);
            assert!(encode_message(text).is_ascii() && !encode_message(text).contains('\n'));
        }
        assert_eq!(decode_message(b"%"), "%");
        assert_eq!(decode_message(b"%4"), "%4");
    }
}
