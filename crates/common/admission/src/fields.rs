//! Fields of an object that are filled while the body is decoded, so that guards do not scan a large object again.
//!
//! JSON allows a key twice and does not say which value counts. If this concerns the path to a field, no field of the object is
//! read, because another reader could see another name or other labels. The guard decides about such an object
//! ([`ReviewedObject::duplicate_key`]). API servers send none.

use std::borrow::Cow;

use json::{JsonError, Raw, Scanner, Shape};

/// Limit of fields, including those of the envelope.
pub const MAX_FIELDS: usize = 28;

/// Fields of the envelope, which precede the guard's.
const OWN: [&str; 4] = ["/metadata/name", "/metadata/namespace", "/metadata/uid", "/deleteOptions/dryRun"];
pub(crate) const OWN_NAME: usize = 0;
pub(crate) const OWN_NAMESPACE: usize = 1;
pub(crate) const OWN_UID: usize = 2;
pub(crate) const OWN_DRY_RUN: usize = 3;

/// Declares the fields that a guard reads: an enum with their names, and their JSON pointers in the same order as `POINTERS`.
#[macro_export]
macro_rules! fields {
    ($(#[$about:meta])* $visible:vis enum $fields:ident { $($name:ident = $pointer:literal),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $visible enum $fields {
            $(#[doc = concat!("`", $pointer, "`")] $name),+
        }

        impl $fields {
            /// The JSON pointers of all fields.
            $visible const POINTERS: [&'static str; [$($pointer),+].len()] = [$($pointer),+];
        }

        impl From<$fields> for usize {
            fn from(field: $fields) -> Self {
                field as Self
            }
        }
    };
}

/// Paths (JSON pointers) into `object` and `oldObject`, created once per guard.
#[derive(Debug, Clone)]
pub struct Fields {
    keys: Vec<PathKey>,
}

/// A key of an object on the path to a field.
#[derive(Debug, Clone)]
struct PathKey {
    name: String,
    /// A bit for each field that is the value of the key.
    fields: u32,
    /// The keys of the value, if that is an object.
    keys: Vec<PathKey>,
}

impl Fields {
    /// Creates the list. [`ReviewedObject::field`] takes a name of [`fields!`] or an index into `pointers`. Pointers above [`MAX_FIELDS`] are ignored.
    pub fn new(pointers: &[&str]) -> Self {
        let mut keys = Vec::new();
        for (index, pointer) in OWN.iter().chain(pointers).take(MAX_FIELDS).enumerate() {
            let path: Vec<String> =
                pointer.split('/').skip(1).map(|s| s.replace("~1", "/").replace("~0", "~")).collect();
            // MAX_FIELDS is below 32, so the shift cannot overflow.
            add(&mut keys, &path, 1 << index);
        }
        Self { keys }
    }

    /// Creates an empty list.
    pub fn none() -> Self {
        Self::new(&[])
    }

    /// Reads the next value and its fields into `object`, which is none for `null`.
    pub(crate) fn capture<'a>(
        &self,
        scanner: &mut Scanner<'a>,
        object: &mut Option<ReviewedObject<'a>>,
    ) -> Result<(), JsonError> {
        if scanner.peek()? == Shape::Null {
            *object = None;
            return scanner.skip();
        }
        // `peek` has skipped white space.
        let mut whole = scanner.clone();
        let empty =
            ReviewedObject { raw: Raw::NULL, fields: [Span::ABSENT; MAX_FIELDS], duplicate_key: None };
        let object = object.insert(empty);
        Capture { object, start: scanner.offset() }.read(scanner, &self.keys)?;
        object.raw = whole.value_until(scanner);
        if object.duplicate_key.is_some() {
            object.fields = [Span::ABSENT; MAX_FIELDS];
        }
        Ok(())
    }
}

/// Adds the keys of a path to a field.
fn add(keys: &mut Vec<PathKey>, path: &[String], field: u32) {
    let [name, below @ ..] = path else { return };
    let index = keys.iter().position(|key| key.name == *name).unwrap_or(keys.len());
    if index == keys.len() {
        keys.push(PathKey { name: name.clone(), fields: 0, keys: Vec::new() });
    }
    if let Some(key) = keys.get_mut(index) {
        if below.is_empty() { key.fields |= field } else { add(&mut key.keys, below, field) }
    }
}

/// An object while it is read.
struct Capture<'o, 'a> {
    object: &'o mut ReviewedObject<'a>,
    /// The offset of the object.
    start: usize,
}

impl<'a> Capture<'_, 'a> {
    /// Reads a value. If it is an object, `keys` are the keys that lead to fields.
    fn read(&mut self, scanner: &mut Scanner<'a>, keys: &[PathKey]) -> Result<(), JsonError> {
        if keys.is_empty() || scanner.peek()? != Shape::Object {
            return scanner.skip();
        }
        let mut seen = 0_u32;
        scanner.object(|scanner, name: Cow<'a, str>| {
            let Some((index, key)) = keys.iter().enumerate().find(|(_, key)| *key.name == *name) else {
                return scanner.skip();
            };
            scanner.peek()?;
            let start = scanner.offset();
            if seen >> index & 1 == 1 {
                self.object.duplicate_key.get_or_insert(start - self.start);
                return scanner.skip();
            }
            seen |= 1 << index;
            self.read(scanner, &key.keys)?;
            let span = Span::new(start - self.start, scanner.offset() - self.start)?;
            for field in bits(key.fields) {
                if let Some(slot) = self.object.fields.get_mut(field) {
                    *slot = span;
                }
            }
            Ok(())
        })
    }
}

/// Iterates over the indexes of set bits.
fn bits(mut set: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = (set != 0).then(|| set.trailing_zeros() as usize);
        set &= set.wrapping_sub(1);
        place
    })
}

/// The place of a value in the text of an object. The offsets have 32 bits to keep a review small, because it is moved several times.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: u32,
    end: u32,
}

impl Span {
    const ABSENT: Self = Self { start: 0, end: 0 };

    /// Creates the span of a value. An offset that needs more than 32 bits is an error: the field must not count as absent.
    fn new(start: usize, end: usize) -> Result<Self, JsonError> {
        let offset =
            |at| u32::try_from(at).map_err(|_| JsonError { at, what: "the object is larger than 4 GiB" });
        Ok(Self { start: offset(start)?, end: offset(end)? })
    }
}

/// An object of a review: its raw text, and its fields.
#[derive(Debug, Clone, Copy)]
pub struct ReviewedObject<'a> {
    raw: Raw<'a>,
    fields: [Span; MAX_FIELDS],
    /// Offset in `raw` of the value of a duplicate key.
    duplicate_key: Option<usize>,
}

impl<'a> ReviewedObject<'a> {
    /// Returns the object as it was sent.
    pub fn raw(&self) -> Raw<'a> {
        self.raw
    }

    /// Returns the duplicate key on the path to a field, for instance `metadata.name`. Such an object has no
    /// [`field`](Self::field). A guard must treat it as unreadable, not as an object without these fields.
    pub fn duplicate_key(&self) -> Option<String> {
        self.duplicate_key.map(|at| path_to(self.raw, at))
    }

    /// Returns a field of the guard's list. Returns none if it is absent, or if the object has a duplicate key.
    pub fn field(&self, field: impl Into<usize>) -> Option<Raw<'a>> {
        self.own(OWN.len() + field.into())
    }

    /// Returns `metadata.uid`. An object that is being created has none.
    pub fn uid(&self) -> Option<Cow<'a, str>> {
        self.own(OWN_UID).and_then(Raw::text).filter(|uid| !uid.is_empty())
    }

    pub(crate) fn own(&self, index: usize) -> Option<Raw<'a>> {
        let span = self.fields.get(index)?;
        self.raw.part(span.start as usize..span.end as usize)
    }
}

/// Returns the keys on the path to the value at this offset, joined with dots.
fn path_to(object: Raw<'_>, at: usize) -> String {
    let mut path = String::new();
    let mut next = Some((object, 0));
    while let Some((outer, start)) = next.take() {
        // The text was scanned before, so this cannot fail.
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

    fn capture<'a>(text: &'a str, pointers: &[&str]) -> Result<Option<ReviewedObject<'a>>, JsonError> {
        let mut object = None;
        Fields::new(pointers).capture(&mut Scanner::new(text), &mut object)?;
        Ok(object)
    }

    #[test]
    fn reads_fields_and_keeps_the_raw_text() {
        let text = r#"  { "metadata" : {"labels": {"a":"b"}, "name":"x", "annotations":{"durward.dev/x":"1","o":2}}, "spec":[1]} "#;
        let object = capture(
            text,
            &["/metadata/labels", "/spec", "/metadata/annotations/durward.dev~1x", "/gone/away", "/metadata"],
        );
        let object = object.unwrap().unwrap();
        assert_eq!(object.raw().get(), text.trim());
        assert_eq!(object.field(0_usize).unwrap().get(), r#"{"a":"b"}"#);
        assert_eq!(object.field(1_usize).unwrap().get(), "[1]");
        assert_eq!(object.field(2_usize).unwrap().get(), r#""1""#);
        assert!(object.field(3_usize).is_none());
        assert!(object.field(4_usize).unwrap().get().starts_with(r#"{"labels""#));
        assert_eq!(object.own(OWN_NAME).unwrap().text().unwrap(), "x");
    }

    #[test]
    fn each_name_of_a_list_has_its_pointer() {
        fields! {
            enum ServiceField {
                Spec = "/spec",
                Labels = "/metadata/labels",
            }
        }
        let object =
            capture(r#"{"metadata":{"labels":1},"spec":2}"#, &ServiceField::POINTERS).unwrap().unwrap();
        assert_eq!(object.field(ServiceField::Labels).unwrap().get(), "1");
        assert_eq!(object.field(ServiceField::Spec).unwrap().get(), "2");
    }

    #[test]
    fn null_is_not_an_object_and_a_number_has_no_fields() {
        assert!(capture("null", &["/a"]).unwrap().is_none());
        let number = capture("7", &["/a"]).unwrap().unwrap();
        assert_eq!(number.raw().shape(), Shape::Number);
        assert!(number.field(0_usize).is_none());
    }

    #[test]
    fn an_escaped_key_is_the_same_key() {
        let object = capture(r#"{"met\u0061data":{"labels":1}}"#, &["/metadata/labels"]).unwrap().unwrap();
        assert_eq!(object.field(0_usize).unwrap().get(), "1");
    }

    #[test]
    fn reads_no_field_of_an_object_with_a_duplicate_key_on_the_path_to_one() {
        let wanted = ["/metadata/labels", "/spec/a~1b", "/metadata"];
        for (text, expected) in [
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
            assert_eq!(object.duplicate_key().as_deref(), Some(expected), "{text}");
            assert_eq!(object.raw().get(), text);
            assert!((0..wanted.len()).all(|index| object.field(index).is_none()), "{text}");
            assert!([OWN_NAME, OWN_DRY_RUN].into_iter().all(|index| object.own(index).is_none()), "{text}");
        }
        assert!(capture(r#"{"spec":{},"spec":{]}"#, &wanted).is_err());
    }

    #[test]
    fn refuses_a_field_beyond_four_gib() {
        let last = u32::MAX as usize;
        assert!(Span::new(last - 1, last).is_ok());
        assert!(Span::new(last, last + 1).is_err());
    }

    #[test]
    fn accepts_duplicates_of_keys_that_are_not_read() {
        let text = r#"{"other":1,"other":2,"metadata":{"labels":{"a":1,"a":2},"generation":1,"generation":2,"name":"x"}}"#;
        let object = capture(text, &["/metadata/labels"]).unwrap().unwrap();
        assert_eq!(object.duplicate_key(), None);
        assert_eq!(object.field(0_usize).unwrap().get(), r#"{"a":1,"a":2}"#);
        assert_eq!(object.own(OWN_NAME).unwrap().text().unwrap(), "x");
    }
}
