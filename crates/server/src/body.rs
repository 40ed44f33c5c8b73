//! A body on its way in: charged as it arrives, with the cost of its connection at the first byte, kept in one piece, given a
//! time.
//!
//! A small review (most are 2 to 20 kB) mostly arrives whole in the connection's read buffer and is used from there, without
//! a copy. A larger one goes into a buffer that grows with what has arrived and is never larger than what was announced.
//! It grows in few large steps: each step leaves a hole where the buffer was, and with 64 MiB of bodies in flight the holes of
//! doubling alone came to 28 MiB of resident memory.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use crate::limits::Share;
use crate::settings::Limits;

/// Up to here a buffer is made in one go for all that was announced. What has not arrived is not written to and so not resident;
/// and 512 holes of 16 KiB, which a first step of that size left, were 8 MiB.
const AT_ONCE: usize = 128 << 10;
/// A step. Memory that was reserved and not written to is not resident, so that a step too large costs addresses only.
const STEP: usize = 8;

/// A body that has arrived.
pub(crate) enum Body {
    /// In one piece, as it was read from the connection.
    Whole(Bytes),
    /// In several pieces, put together.
    Joined(Vec<u8>),
}

/// Why a body did not arrive.
#[derive(Debug)]
pub(crate) enum Missing {
    /// The bytes of all bodies together reached their limit.
    Full,
    /// It was not there in time; so many bytes were.
    Slow(usize),
    /// The connection broke; so many bytes had arrived.
    Broken(usize),
}

impl Body {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Whole(bytes) => bytes,
            Self::Joined(bytes) => bytes,
        }
    }
}

/// Reads a body of `length` bytes within `time`, each byte charged to `share`, and at the first one [`Limits::BODY_COST`].
pub(crate) async fn read(
    incoming: Incoming,
    length: usize,
    share: &mut Share,
    time: Duration,
) -> Result<Body, Missing> {
    let mut arriving = Arriving { length, first: None, joined: Vec::new() };
    match tokio::time::timeout(time, arriving.fill(incoming, share)).await {
        Ok(Ok(())) => Ok(arriving.finish()),
        Ok(Err(missing)) => Err(missing),
        Err(_) => Err(Missing::Slow(arriving.arrived())),
    }
}

/// At most one of `first` and `joined` holds something.
struct Arriving {
    length: usize,
    first: Option<Bytes>,
    joined: Vec<u8>,
}

impl Arriving {
    fn arrived(&self) -> usize {
        self.first.as_ref().map_or(self.joined.len(), Bytes::len)
    }

    async fn fill(&mut self, mut incoming: Incoming, share: &mut Share) -> Result<(), Missing> {
        let mut beside = Limits::BODY_COST;
        while self.arrived() < self.length {
            let Some(Ok(frame)) = incoming.frame().await else {
                return Err(Missing::Broken(self.arrived()));
            };
            let Ok(data) = frame.into_data() else { continue };
            if !share.grow(std::mem::take(&mut beside) + data.len()) {
                return Err(Missing::Full);
            }
            self.push(data);
        }
        Ok(())
    }

    fn push(&mut self, data: Bytes) {
        if self.arrived() == 0 {
            self.first = Some(data);
            return;
        }
        if let Some(first) = self.first.take() {
            self.make_room(first.len() + data.len());
            self.joined.extend_from_slice(&first);
        }
        self.make_room(data.len());
        self.joined.extend_from_slice(&data);
    }

    /// Grows by a factor, so that copying stays linear; but never past what was announced.
    fn make_room(&mut self, more: usize) {
        let needed = self.joined.len() + more;
        if needed > self.joined.capacity() {
            let larger = (self.joined.capacity() * STEP).max(AT_ONCE).min(self.length);
            self.joined.reserve_exact(larger.max(needed) - self.joined.len());
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

    fn arriving(length: usize) -> Arriving {
        Arriving { length, first: None, joined: Vec::new() }
    }

    #[test]
    fn a_body_in_one_piece_is_not_copied() {
        let data = Bytes::from(vec![7; 2300]);
        let at = data.as_ptr();
        let mut arriving = arriving(2300);
        arriving.push(data);
        let body = arriving.finish();
        assert!(matches!(&body, Body::Whole(whole) if whole.as_ptr() == at));
    }

    #[test]
    fn a_small_body_in_pieces_is_one_buffer_of_its_size() {
        let mut arriving = arriving(2300);
        arriving.push(Bytes::from(vec![1; 100]));
        arriving.push(Bytes::from(vec![2; 100]));
        assert_eq!(arriving.joined.capacity(), 2300);
        arriving.push(Bytes::from(vec![3; 2100]));
        assert_eq!(arriving.joined.capacity(), 2300);
        let body = arriving.finish();
        assert_eq!(body.bytes().len(), 2300);
        assert_eq!((body.bytes()[99], body.bytes()[100], body.bytes()[200]), (1, 2, 3));
    }

    #[test]
    fn a_large_body_grows_with_what_arrived_and_ends_at_its_size() {
        let length = 5_500_000;
        let mut arriving = arriving(length);
        while arriving.arrived() < length {
            let chunk = 10_000.min(length - arriving.arrived());
            arriving.push(Bytes::from(vec![1; chunk]));
            assert!(arriving.joined.capacity() <= (STEP * arriving.arrived()).max(AT_ONCE));
        }
        assert_eq!(arriving.joined.capacity(), length);
    }
}
