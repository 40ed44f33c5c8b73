//! As much of gRPC as a device plugin needs: one message in, one or many out, over HTTP/2 on a socket in the file system.
//!
//! A message is a byte (compressed or not), its length in four, and itself. How a call ended stands in the trailers. See
//! <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>.

use std::convert::Infallible;
use std::fmt;
use std::path::Path;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::Stream;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::{Body, Frame};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, TE};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::UnixStream;

/// A kubelet that allocates all of a thousand devices names them in 16 kB.
const LARGEST: usize = 4 << 20;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const STATUS: &str = "grpc-status";
const MESSAGE: &str = "grpc-message";

/// What an answer is made of.
pub(super) type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// How a call can fail: the codes of gRPC that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    InvalidArgument = 3,
    Unimplemented = 12,
    Unavailable = 14,
}

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) code: u32,
    pub(super) text: String,
}

impl Fault {
    pub(super) fn new(code: Code, text: impl Into<String>) -> Self {
        Self { code: code as u32, text: text.into() }
    }

    /// It never came to an answer.
    fn unheard(error: &dyn fmt::Display) -> Self {
        Self::new(Code::Unavailable, error.to_string())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (gRPC code {})", self.text, self.code)
    }
}

/// The one message of a body.
pub(super) async fn message<M: Message + Default>(
    body: impl Body<Data = Bytes, Error: std::error::Error + Send + Sync + 'static>,
) -> Result<M, Fault> {
    let body = Limited::new(body, LARGEST).collect().await.map_err(|error| Fault::unheard(&error))?;
    decoded(&body.to_bytes())
}

fn decoded<M: Message + Default>(bytes: &[u8]) -> Result<M, Fault> {
    let invalid = |text: &str| Fault::new(Code::InvalidArgument, text);
    let (head, rest) = bytes.split_at_checked(5).ok_or_else(|| invalid("there is no message"))?;
    let [compressed, length @ ..] = head else { return Err(invalid("there is no message")) };
    if *compressed != 0 {
        return Err(Fault::new(Code::Unimplemented, "compressed messages are not understood"));
    }
    let length = length.iter().fold(0_usize, |length, &byte| length << 8 | usize::from(byte));
    if rest.len() != length {
        return Err(invalid("it is not one message"));
    }
    M::decode(rest).map_err(|error| invalid(&error.to_string()))
}

fn encoded(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(length + 5);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    bytes.put_slice(&message.encode_to_vec());
    bytes.freeze()
}

/// An answer of one message, or of none and why.
pub(super) fn once(outcome: Result<impl Message, Fault>) -> Answer {
    match outcome {
        Ok(message) => frames(stream::iter([Frame::data(encoded(&message)), well()])),
        Err(fault) => failed(&fault),
    }
}

/// An answer of messages as they come; it ends well when they do.
pub(super) fn many<M: Message + 'static>(messages: impl Stream<Item = M> + Send + 'static) -> Answer {
    use futures_util::StreamExt as _;
    frames(
        messages
            .map(|message| Frame::data(encoded(&message)))
            .chain(stream::once(std::future::ready(well()))),
    )
}

fn frames(frames: impl Stream<Item = Frame<Bytes>> + Send + 'static) -> Answer {
    use futures_util::StreamExt as _;
    let body = StreamBody::new(frames.map(Ok::<_, Infallible>));
    let mut answer = Response::new(body.boxed_unsync());
    answer.headers_mut().insert(CONTENT_TYPE, GRPC);
    answer
}

fn well() -> Frame<Bytes> {
    let mut trailers = HeaderMap::new();
    trailers.insert(STATUS, HeaderValue::from_static("0"));
    Frame::trailers(trailers)
}

/// A call that failed has no body, and its end stands in the headers.
pub(super) fn failed(fault: &Fault) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::new()).boxed_unsync());
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, GRPC);
    headers.insert(STATUS, HeaderValue::from(fault.code));
    if let Ok(text) = HeaderValue::from_str(&percent(&fault.text)) {
        headers.insert(MESSAGE, text);
    }
    answer
}

/// Sends one message to whoever listens at `socket`, and waits for one.
pub(super) async fn call<M: Message + Default>(
    socket: &Path,
    path: &'static str,
    message: &impl Message,
) -> Result<M, Fault> {
    let stream = UnixStream::connect(socket).await.map_err(|error| Fault::unheard(&error))?;
    let shaken = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|error| Fault::unheard(&error))?;
    // Both at once: the connection does the work, and is dropped with this call.
    let answering = async {
        let request = Request::post(format!("http://localhost{path}"))
            .header(CONTENT_TYPE, GRPC)
            .header(TE, "trailers")
            .body(Full::new(encoded(message)))
            .map_err(|error| Fault::unheard(&error))?;
        let answer = sender.send_request(request).await.map_err(|error| Fault::unheard(&error))?;
        let (head, body) = answer.into_parts();
        if let Some(fault) = fault(&head.headers) {
            return Err(fault);
        }
        let body = Limited::new(body, LARGEST).collect().await.map_err(|error| Fault::unheard(&error))?;
        match body.trailers().map_or_else(|| fault(&HeaderMap::new()), fault) {
            Some(fault) => Err(fault),
            None => decoded(&body.to_bytes()),
        }
    };
    tokio::pin!(connection);
    tokio::select! {
        answer = answering => answer,
        ended = &mut connection => {
            let why = ended.err().map_or_else(|| "the connection ended".to_owned(), |error| error.to_string());
            Err(Fault::new(Code::Unavailable, why))
        }
    }
}

/// Why a call failed, by the headers that say so; nothing where they say that it did not, or nothing.
fn fault(headers: &HeaderMap) -> Option<Fault> {
    let status = headers.get(STATUS)?;
    let code = status.to_str().ok().and_then(|code| code.parse().ok()).unwrap_or(2);
    let text = headers.get(MESSAGE).map(|text| unpercent(text.as_bytes())).unwrap_or_default();
    (code != 0).then_some(Fault { code, text })
}

/// `grpc-message` is ASCII that can be printed; everything else is written as `%XX`.
fn percent(text: &str) -> String {
    use fmt::Write as _;
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            out.push(char::from(byte));
        } else {
            // A text takes everything.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

fn unpercent(text: &[u8]) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [byte, after @ ..] = rest {
        let code = after
            .get(..2)
            .filter(|_| *byte == b'%')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        out.push(code.unwrap_or(*byte));
        rest = if code.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::api::{Empty, Options};
    use super::*;

    #[test]
    fn a_message_is_framed_and_read_back() {
        let options = Options { pre_start_required: false, get_preferred_allocation_available: true };
        let bytes = encoded(&options);
        assert_eq!(&bytes[..], b"\0\0\0\0\x02\x10\x01");
        assert_eq!(decoded::<Options>(&bytes), Ok(options));
        assert_eq!(decoded::<Empty>(b"\0\0\0\0\0"), Ok(Empty {}));
    }

    #[test]
    fn what_is_no_message_is_a_fault_and_nothing_worse() {
        let frames: [&[u8]; 6] =
            [b"", b"\0\0\0", b"\0\0\0\0\x01", b"\0\xff\xff\xff\xff", b"\0\0\0\0\0\0", b"\0\0\0\0\x02\x10"];
        for frame in frames {
            assert_eq!(
                decoded::<Options>(frame).unwrap_err().code,
                Code::InvalidArgument as u32,
                "{frame:?}"
            );
        }
        assert_eq!(decoded::<Empty>(b"\x01\0\0\0\0").unwrap_err().code, Code::Unimplemented as u32);
    }

    #[test]
    fn a_text_survives_the_header_whatever_is_in_it() {
        for text in ["plain", "100 % \u{fc}ber\n", "%41", ""] {
            assert_eq!(unpercent(percent(text).as_bytes()), text);
            assert!(percent(text).is_ascii() && !percent(text).contains('\n'));
        }
        assert_eq!(unpercent(b"%"), "%");
        assert_eq!(unpercent(b"%4"), "%4");
    }
}
