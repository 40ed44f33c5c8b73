//! Reads a body: reserves memory as it arrives, with the cost of its connection at the first byte, and limits its time.
//!
//! A small review (most have 2 to 20 kB) usually arrives whole in the connection's read buffer and is used from there without a
//! copy. A larger one is copied to a buffer that grows with what has arrived. It grows in few large steps, because each step leaves a
//! hole: with 64 MiB of bodies in flight, doubling left 28 MiB of resident holes.

use std::time::Duration;

use admission::budget::{ReservedBytes, ReviewMemory};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use crate::settings::Limits;

/// Bodies up to this size get their whole buffer at once. Memory that is not written to is not resident. A first step of 16 KiB
/// left 8 MiB of holes with 512 bodies.
const MIN_BUFFER: usize = 128 << 10;
/// Size of the second step.
const LARGE_BUFFER: usize = 1 << 20;
/// Size of the last step for larger bodies. Allocations above 32 MiB are mapped and unmapped by themselves. glibc keeps smaller ones
/// after they are freed, if one of their size was freed before (`M_MMAP_THRESHOLD`). Memory that is not written to costs only
/// addresses.
const MAPPED_BUFFER: usize = 33 << 20;

/// A whole body.
pub(crate) enum Body {
    /// In one piece, as it was read from the connection.
    Whole(Bytes),
    /// Copied from several pieces.
    Joined(Vec<u8>),
}

/// The reason why a body did not arrive.
#[derive(Debug)]
pub(crate) enum BodyError {
    /// The memory for all bodies is used up.
    NoMemory,
    /// It did not arrive in time.
    Timeout {
        /// Bytes that did arrive.
        arrived: usize,
    },
    /// The connection ended.
    Disconnected {
        /// Bytes that did arrive.
        arrived: usize,
    },
}

impl Body {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Whole(bytes) => bytes,
            Self::Joined(bytes) => bytes,
        }
    }
}

/// Reads a body of `length` bytes within `time`. Reserves each byte, and [`Limits::BODY_COST`] with the first one.
pub(crate) async fn read(
    incoming: Incoming,
    length: usize,
    reservation: &mut ReservedBytes,
    time: Duration,
) -> Result<Body, BodyError> {
    let mut buffer = Buffer { length, first: None, joined: Vec::new() };
    match tokio::time::timeout(time, buffer.fill(incoming, reservation)).await {
        Ok(Ok(())) => Ok(buffer.finish()),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(BodyError::Timeout { arrived: buffer.len() }),
    }
}

/// Returns the bytes, without a copy. The memory is returned when the last of them is dropped.
pub(crate) fn reserved(bytes: Vec<u8>, memory: ReviewMemory) -> Bytes {
    struct Reserved(Vec<u8>, #[expect(dead_code, reason = "held until the bytes are dropped")] ReviewMemory);
    impl AsRef<[u8]> for Reserved {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Bytes::from_owner(Reserved(bytes, memory))
}

/// A body that is being read. At most one of `first` and `joined` is not empty.
struct Buffer {
    length: usize,
    first: Option<Bytes>,
    joined: Vec<u8>,
}

impl Buffer {
    fn len(&self) -> usize {
        self.first.as_ref().map_or(self.joined.len(), Bytes::len)
    }

    async fn fill(
        &mut self,
        mut incoming: Incoming,
        reservation: &mut ReservedBytes,
    ) -> Result<(), BodyError> {
        let mut cost = Limits::BODY_COST;
        while self.len() < self.length {
            let Some(Ok(frame)) = incoming.frame().await else {
                return Err(BodyError::Disconnected { arrived: self.len() });
            };
            let Ok(data) = frame.into_data() else { continue };
            if !reservation.grow(std::mem::take(&mut cost) + data.len()) {
                return Err(BodyError::NoMemory);
            }
            self.push(data);
        }
        Ok(())
    }

    fn push(&mut self, data: Bytes) {
        if self.len() == 0 {
            self.first = Some(data);
            return;
        }
        if let Some(first) = self.first.take() {
            self.grow(first.len() + data.len());
            self.joined.extend_from_slice(&first);
        }
        self.grow(data.len());
        self.joined.extend_from_slice(&data);
    }

    /// Grows in three steps. A body that is not large has a buffer of its length at last.
    fn grow(&mut self, more: usize) {
        let needed = self.joined.len() + more;
        if needed > self.joined.capacity() {
            let steps = [MIN_BUFFER, LARGE_BUFFER, MAPPED_BUFFER].into_iter();
            let larger = steps.map(|step| if step < MAPPED_BUFFER { step.min(self.length) } else { step });
            let larger = larger.filter(|step| *step >= needed).min().unwrap_or(self.length.max(needed));
            self.joined.reserve_exact(larger - self.joined.len());
        }
    }

    fn finish(self) -> Body {
        match self.first {
            Some(whole) => Body::Whole(whole),
            None => Body::Joined(self.joined),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(length: usize) -> Buffer {
        Buffer { length, first: None, joined: Vec::new() }
    }

    #[test]
    fn does_not_copy_a_body_in_one_piece() {
        let data = Bytes::from(vec![7; 2300]);
        let at = data.as_ptr();
        let mut buffer = buffer(2300);
        buffer.push(data);
        let body = buffer.finish();
        assert!(matches!(&body, Body::Whole(whole) if whole.as_ptr() == at));
    }

    #[test]
    fn joins_the_pieces_of_a_small_body_in_one_buffer_of_its_size() {
        let mut buffer = buffer(2300);
        buffer.push(Bytes::from(vec![1; 100]));
        buffer.push(Bytes::from(vec![2; 100]));
        assert_eq!(buffer.joined.capacity(), 2300);
        buffer.push(Bytes::from(vec![3; 2100]));
        assert_eq!(buffer.joined.capacity(), 2300);
        let body = buffer.finish();
        assert_eq!(body.bytes().len(), 2300);
        assert_eq!((body.bytes()[99], body.bytes()[100], body.bytes()[200]), (1, 2, 3));
    }

    #[test]
    fn maps_the_buffer_of_a_large_body_after_its_first_mebibyte() {
        let length = 5_500_000;
        let mut buffer = buffer(length);
        while buffer.len() < length {
            let chunk = 10_000.min(length - buffer.len());
            buffer.push(Bytes::from(vec![1; chunk]));
            let is_first = buffer.len() <= LARGE_BUFFER;
            assert!(!is_first || buffer.joined.capacity() <= (8 * buffer.len()).max(MIN_BUFFER));
        }
        assert_eq!(buffer.joined.capacity(), MAPPED_BUFFER);
    }

    #[test]
    fn a_body_of_less_than_a_mebibyte_has_a_buffer_of_its_length() {
        let mut buffer = buffer(300_000);
        (0..3).for_each(|_| buffer.push(Bytes::from(vec![1; 100_000])));
        assert_eq!((buffer.joined.capacity(), buffer.finish().bytes().len()), (300_000, 300_000));
    }

    #[test]
    fn keeps_the_reservation_until_the_last_byte_is_dropped() {
        let budget = admission::budget::Budget::new(4);
        let answer = vec![7; 4];
        let at = answer.as_ptr();
        let mut bytes = reserved(answer, ReviewMemory::new(budget.reserve(4).unwrap()));
        assert_eq!(bytes.as_ptr(), at);
        let first = bytes.split_to(1);
        drop(bytes);
        assert!(budget.is_exhausted());
        drop(first);
        assert!(budget.reserve(4).is_some());
    }
}
