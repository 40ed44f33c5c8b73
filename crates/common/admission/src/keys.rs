//! Reads objects of the envelope by their keys, each at most once.
//!
//! JSON allows a key twice and does not say which value counts. Two readers could then understand a review differently, so a
//! review with a duplicate key is rejected. API servers write none.

use json::Scanner;

use crate::decode_error::DecodeError;

/// A key of an object that is read.
pub(crate) trait KeySet: Copy {
    /// The end of an error text that names the object, for instance ` in the request`.
    const OBJECT: &'static str;

    /// Returns the key with this name.
    fn find(name: &str) -> Option<Self>;
    /// Returns the name of the key.
    fn name(self) -> &'static str;
    /// Returns a number with one bit set, which no other key of the object has.
    fn bit(self) -> u32;
}

/// Declares the keys of an object, at most 32, and the end of an error text that names the object.
macro_rules! keys {
    ($keys:ident, $object:literal { $($key:ident = $name:literal),+ $(,)? }) => {
        #[derive(Clone, Copy)]
        enum $keys { $($key),+ }

        impl $crate::keys::KeySet for $keys {
            const OBJECT: &'static str = $object;

            fn find(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$key),)+
                    _ => None,
                }
            }

            fn name(self) -> &'static str {
                match self {
                    $(Self::$key => $name),+
                }
            }

            fn bit(self) -> u32 {
                1 << self as u32
            }
        }
    };
}

pub(crate) use keys;

/// Reads an object. `each` is called for every key of the object that `K` knows, and must read or skip its value. Other values are
/// skipped.
pub(crate) fn read<'a, K: KeySet>(
    scanner: &mut Scanner<'a>,
    mut each: impl FnMut(&mut Scanner<'a>, K) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let mut seen = 0_u32;
    scanner.object(|scanner, name| {
        let Some(key) = K::find(&name) else { return Ok(scanner.skip()?) };
        if seen & key.bit() != 0 {
            return Err(DecodeError::DuplicateKey {
                at: scanner.offset(),
                key: key.name(),
                object: K::OBJECT,
            });
        }
        seen |= key.bit();
        each(scanner, key)
    })
}
