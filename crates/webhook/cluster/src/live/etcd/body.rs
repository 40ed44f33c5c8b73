//! Response bodies of members: charged to the budget of all responses, and limited.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use admission::budget::ReservedBytes;
use bytes::Bytes;
use hyper::body::{Body, Frame};
use tonic::body::Body as GrpcBody;
use tower::BoxError;

use crate::live::body::{BodyReader, UNCOUNTED};

/// 1 MiB: a list of a hundred members has 20 kB.
pub(super) const LIMIT: usize = 1 << 20;

/// Status details are encoded in base64, and tonic 0.14 panics if they are not (`Status::from_header_map`). Etcd sends none.
pub(super) const DETAILS: &str = "grpc-status-details-bin";

/// Why a body is not read to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum GrpcBodyError {
    #[error("Durward has no memory left for responses (64 MiB); retry")]
    NoMemory,
    #[error("the answer is longer than {} MiB", LIMIT >> 20)]
    TooLong,
}

/// A body whose bytes are charged until it is dropped, which is after its message was parsed.
pub(super) struct ChargedBody {
    body: GrpcBody,
    received: usize,
    memory: ReservedBytes,
}

impl ChargedBody {
    pub(super) fn new(body: GrpcBody, bodies: &BodyReader) -> Self {
        Self { body, received: 0, memory: bodies.memory() }
    }

    fn charge(&mut self, more: usize) -> Result<(), GrpcBodyError> {
        self.received += more;
        if self.received > LIMIT {
            return Err(GrpcBodyError::TooLong);
        }
        let is_charged = self.memory.resize(self.received.saturating_sub(UNCOUNTED));
        is_charged.then_some(()).ok_or(GrpcBodyError::NoMemory)
    }
}

impl Body for ChargedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(context)) else {
            return Poll::Ready(None);
        };
        let mut frame = frame?;
        if let Some(data) = frame.data_ref() {
            let length = data.len();
            self.charge(length)?;
        }
        if let Some(trailers) = frame.trailers_mut() {
            trailers.remove(DETAILS);
        }
        Poll::Ready(Some(Ok(frame)))
    }
}
