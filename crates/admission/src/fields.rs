//! The few fields of an object that are filled while the body is decoded, so that no guard walks a large object again.
//!
//! JSON allows a key to stand twice and leaves open which one counts. Where that is so on the way to a wanted field, nothing
//! is read of the object at all: what one reader took for its name or its labels another would not. The review stays one, as
//! what becomes of such an object is the guard's to say ([`Object::doubled`]). API servers send none.

use std::borrow::Cow;

use json::{JsonError, Raw, Scanner, Shape};

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
        // The peek has passed over the white space before it.
        let start = scanner.offset();
        let mut found = Found::default();
        // MAX_FIELDS is below 32, so the shift cannot overflow.
        let all = (1u32 << self.paths.len()) - 1;
        let raw = self.walk(scanner, 0, all, &mut found)?;
        Ok(Some(match found.duplicate_key {
            None => Object { raw, fields: found.fields, duplicate_key: None },
            Some(at) => Object { raw, fields: [None; MAX_FIELDS], duplicate_key: Some(at - start) },
        }))
    }

    /// `active` has a bit for each path whose first `depth` segments lead here.
    fn walk<'a>(
        &self,
        scanner: &mut Scanner<'a>,
        depth: usize,
        active: u32,
        out: &mut Found<'a>,
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
                scanner.peek()?;
                out.duplicate_key.get_or_insert(scanner.offset());
                return scanner.pass();
            }
            seen |= ends | goes_on;
            let value = self.walk(scanner, depth + 1, goes_on, out)?;
            for index in bits(ends) {
                if let Some(slot) = out.fields.get_mut(index) {
                    *slot = Some(value);
                }
            }
            Ok(())
        })?;
        Ok(whole.upto(scanner))
    }
}

/// What one pass over an object finds.
#[derive(Default)]
struct Found<'a> {
    fields: [Option<Raw<'a>>; MAX_FIELDS],
    /// Where the value begins of the first key that stood there before.
    duplicate_key: Option<usize>,
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
    /// Where in `raw` the value begins of a key that stands there twice.
    duplicate_key: Option<usize>,
}

impl<'a> Object<'a> {
    /// The object as it was sent, byte for byte.
    pub fn raw(&self) -> Raw<'a> {
        self.raw
    }

    /// Which key stands twice on the way to a wanted field, as in `metadata.name`. Such an object has no [`field`](Self::field)
    /// at all, and a guard says that it cannot be read: it is not one whose fields are absent.
    pub fn duplicate_key(&self) -> Option<String> {
        self.duplicate_key.map(|at| path_to(self.raw, at))
    }

    /// The field that stands at `index` in the guard's list, if the object has it; none if the object is
    /// [`doubled`](Self::doubled).
    pub fn field(&self, index: usize) -> Option<Raw<'a>> {
        self.fields.get(OWN.len() + index).copied().flatten()
    }

    pub(crate) fn own(&self, index: usize) -> Option<Raw<'a>> {
        self.fields.get(index).copied().flatten()
    }
}

/// The keys that lead to the value at this offset, with dots between them.
fn path_to(object: Raw<'_>, at: usize) -> String {
    let mut path = String::new();
    let mut next = Some((object, 0));
    while let Some((outer, start)) = next.take() {
        // The text was scanned once before, so this cannot fail; if it did, the path would be told as far as it was read.
        let _: Result<(), JsonError> = outer.scan().object(|scanner, key| {
            scanner.peek()?;
            let begins = start + scanner.offset();
            let value = scanner.value()?;
            if (begins..begins + value.get().len()).contains(&at) {
                path.push_str(if path.is_empty() { "" } else { "." });
                path.push_str(&key);
                next = (begins != at).then_some((value, begins));
            }
            Ok(())
        });
    }
    path
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
    fn of_an_object_in_which_a_key_on_the_way_to_a_field_stands_twice_nothing_is_read() {
        let wanted = ["/metadata/labels", "/spec/a~1b", "/metadata"];
        for (text, told) in [
            (r#"{"metadata":{"name":"a"},"metadata":{"name":"b"}}"#, "metadata"),
            (r#"{"metadata":{"name":"a","name":"b"}}"#, "metadata.name"),
            (r#"{"metadata":{"name":null,"n\u0061me": null}}"#, "metadata.name"),
            (
                r#"{"metadata":{"labels":{"x":1,"y":{}},"spec":{},"labels": {"x":1}},"spec":{"a/b":1}}"#,
                "metadata.labels",
            ),
            (r#"{"spec":{"a/b":{}, "a/b":{}}}"#, "spec.a/b"),
            (r#"{"spec":{"a/b":{}},"metadata":{},"spec":7,"metadata":{}}"#, "spec"),
            (r#"{"deleteOptions":{"dryRun":[],"dryRun":["All"]}}"#, "deleteOptions.dryRun"),
        ] {
            let padded = format!(" \n {text} ");
            let object = capture(&padded, &wanted).unwrap().unwrap();
            assert_eq!(object.duplicate_key().as_deref(), Some(told), "{text}");
            assert_eq!(object.raw().get(), text);
            assert!((0..wanted.len()).all(|index| object.field(index).is_none()), "{text}");
            assert!([OWN_NAME, OWN_DRY_RUN].into_iter().all(|index| object.own(index).is_none()), "{text}");
        }
        assert!(capture(r#"{"spec":{},"spec":{]}"#, &wanted).is_err());
    }

    #[test]
    fn keys_of_which_nothing_is_wanted_may_stand_twice() {
        let text = r#"{"other":1,"other":2,"metadata":{"labels":{"a":1,"a":2},"uid":1,"uid":2,"name":"x"}}"#;
        let object = capture(text, &["/metadata/labels"]).unwrap().unwrap();
        assert_eq!(object.duplicate_key(), None);
        assert_eq!(object.field(0).unwrap().get(), r#"{"a":1,"a":2}"#);
        assert_eq!(object.own(OWN_NAME).unwrap().text().unwrap(), "x");
    }
}
