//! The few fields of an object that are filled while the body is decoded, so that no guard walks a large object again.

use std::borrow::Cow;

use crate::json::{JsonError, Raw, Scanner, Shape};

/// How many fields one decode can fill, the envelope's own included.
pub const MAX_FIELDS: usize = 24;

/// What the envelope itself reads of every object, before a guard's fields.
const OWN: [&str; 2] = ["/metadata/name", "/deleteOptions/dryRun"];
pub(crate) const OWN_NAME: usize = 0;
pub(crate) const OWN_DRY_RUN: usize = 1;

/// Paths (JSON pointers) into `object` and `oldObject`, made once per guard.
#[derive(Debug, Clone)]
pub struct Fields {
    paths: Vec<Vec<String>>,
}

impl Fields {
    /// The fields that `pointers` name, in that order: [`Object::field`] takes the index into this list.
    ///
    /// # Panics
    /// Never: pointers past [`MAX_FIELDS`] are left unfilled, which the test of every kind's list would show.
    pub fn new(pointers: &[&str]) -> Self {
        let paths = OWN
            .iter()
            .chain(pointers)
            .take(MAX_FIELDS)
            .map(|pointer| {
                pointer.split('/').skip(1).map(|s| s.replace("~1", "/").replace("~0", "~")).collect()
            })
            .collect();
        Self { paths }
    }

    /// For a guard that needs nothing of the object.
    pub fn none() -> Self {
        Self::new(&[])
    }

    /// Passes over the value at the scanner and fills the fields found in it.
    pub(crate) fn capture<'a>(&self, scanner: &mut Scanner<'a>) -> Result<Option<Object<'a>>, JsonError> {
        if scanner.peek()? == Shape::Null {
            scanner.value()?;
            return Ok(None);
        }
        let mut fields = [None; MAX_FIELDS];
        // MAX_FIELDS is below 32, so the shift cannot overflow.
        let all = (1u32 << self.paths.len()) - 1;
        let raw = self.walk(scanner, 0, all, &mut fields)?;
        Ok(Some(Object { raw, fields }))
    }

    /// `active` has a bit for each path whose first `depth` segments lead here.
    fn walk<'a>(
        &self,
        scanner: &mut Scanner<'a>,
        depth: usize,
        active: u32,
        out: &mut [Option<Raw<'a>>; MAX_FIELDS],
    ) -> Result<Raw<'a>, JsonError> {
        if active == 0 || scanner.peek()? != Shape::Object {
            return scanner.value();
        }
        let mut whole = scanner.clone();
        let mut seen = 0;
        scanner.object(|scanner, key: Cow<'a, str>| {
            let (mut ends, mut goes_on) = (0u32, 0u32);
            for index in bits(active) {
                let Some(path) = self.paths.get(index) else { continue };
                if path.get(depth).is_some_and(|segment| *segment == key) {
                    if path.len() == depth + 1 { ends |= 1 << index } else { goes_on |= 1 << index }
                }
            }
            if ends | goes_on == 0 {
                return scanner.pass();
            }
            if seen & (ends | goes_on) != 0 {
                return Err(JsonError { at: scanner.offset(), what: "this key stands twice in its object" });
            }
            seen |= ends | goes_on;
            let value = self.walk(scanner, depth + 1, goes_on, out)?;
            for index in bits(ends) {
                if let Some(slot) = out.get_mut(index) {
                    *slot = Some(value);
                }
            }
            Ok(())
        })?;
        Ok(whole.upto(scanner))
    }
}

/// The places of the bits that are set.
fn bits(mut set: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = (set != 0).then(|| set.trailing_zeros() as usize);
        set &= set.wrapping_sub(1);
        place
    })
}

/// An object of a review: its raw text, and the fields that were wanted of it.
#[derive(Debug, Clone, Copy)]
pub struct Object<'a> {
    raw: Raw<'a>,
    fields: [Option<Raw<'a>>; MAX_FIELDS],
}

impl<'a> Object<'a> {
    /// The object as it was sent, byte for byte.
    pub fn raw(&self) -> Raw<'a> {
        self.raw
    }

    /// The field that stands at `index` in the guard's list, if the object has it.
    pub fn field(&self, index: usize) -> Option<Raw<'a>> {
        self.fields.get(OWN.len() + index).copied().flatten()
    }

    pub(crate) fn own(&self, index: usize) -> Option<Raw<'a>> {
        self.fields.get(index).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture<'a>(text: &'a str, pointers: &[&str]) -> Result<Option<Object<'a>>, JsonError> {
        Fields::new(pointers).capture(&mut Scanner::new(text))
    }

    #[test]
    fn fills_the_wanted_fields_and_keeps_the_raw_text() {
        let text = r#"  { "metadata" : {"labels": {"a":"b"}, "name":"x", "annotations":{"durward.dev/x":"1","o":2}}, "spec":[1]} "#;
        let object = capture(
            text,
            &["/metadata/labels", "/spec", "/metadata/annotations/durward.dev~1x", "/gone/away", "/metadata"],
        );
        let object = object.unwrap().unwrap();
        assert_eq!(object.raw().get(), text.trim());
        assert_eq!(object.field(0).unwrap().get(), r#"{"a":"b"}"#);
        assert_eq!(object.field(1).unwrap().get(), "[1]");
        assert_eq!(object.field(2).unwrap().get(), r#""1""#);
        assert!(object.field(3).is_none());
        assert!(object.field(4).unwrap().get().starts_with(r#"{"labels""#));
        assert_eq!(object.own(OWN_NAME).unwrap().text().unwrap(), "x");
    }

    #[test]
    fn null_is_no_object_and_a_number_has_no_fields() {
        assert!(capture("null", &["/a"]).unwrap().is_none());
        let number = capture("7", &["/a"]).unwrap().unwrap();
        assert_eq!(number.raw().shape(), Shape::Number);
        assert!(number.field(0).is_none());
    }

    #[test]
    fn an_escaped_key_is_the_same_key() {
        let object = capture(r#"{"met\u0061data":{"labels":1}}"#, &["/metadata/labels"]).unwrap().unwrap();
        assert_eq!(object.field(0).unwrap().get(), "1");
    }

    #[test]
    fn a_wanted_key_that_stands_twice_is_refused() {
        assert!(capture(r#"{"metadata":{"name":"a"},"metadata":{"name":"b"}}"#, &[]).is_err());
        assert!(capture(r#"{"other":1,"other":2}"#, &[]).is_ok());
    }
}
