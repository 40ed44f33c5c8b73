//! What the answer of a cluster means: the object, a page, or which of the named causes.
//!
//! The clusters of a fleet are whatever people join to it, and between them and Durward stand proxies. So an answer is taken
//! for what was asked only where it says so itself: its kind, its names, its namespace.

use std::fmt;

use admission::Cause;
use hyper::StatusCode;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::failure::{Failure, Status, brief, is_about, is_unprintable, not_understood, refusal};
use super::member;
use crate::fleet::{Cluster, GetQuery, ListQuery, Object, Owner, Page, Part};
use crate::metadata::{Allowance, Wire};
use crate::{Resource, cause};

/// What is read of an object in any form.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct One {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    metadata: Wire,
}

/// A name as long as this is the longest that Kubernetes takes for any object that guards read.
const LONGEST_NAME: usize = 253;

/// 1 MiB: all annotations of an object are 256 KiB, and JSON may need some bytes for each of theirs.
const LONGEST_STRING: usize = 1 << 20;

/// A List, of which so many items are read as were asked for.
struct Many<'b> {
    api_version: String,
    kind: String,
    metadata: ManyMetadata,
    items: Vec<&'b RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ManyMetadata {
    resource_version: String,
    r#continue: Option<String>,
    remaining_item_count: Option<i64>,
}

/// The answer to the question for one object.
pub(super) fn found(
    of: &Cluster,
    look: GetQuery<'_>,
    status: StatusCode,
    body: &[u8],
) -> Result<Option<Object>, Failure> {
    let GetQuery { address, part } = look;
    if status == StatusCode::NOT_FOUND && is_about(body, address) && !member::is_gone(of, body) {
        return Ok(None);
    }
    if status != StatusCode::OK {
        return Err(refused(of, status, body, "get", address.resource));
    }
    one(look, body)
        .map(|(wire, raw)| Some(object(wire, (part == Part::Whole).then(|| raw.to_owned()))))
        .map_err(|failure| unusable(of, &failure))
}

fn one<'b>(look: GetQuery<'_>, body: &'b [u8]) -> Result<(Wire, &'b RawValue), Failure> {
    let GetQuery { address, part } = look;
    let raw: &RawValue = parsed(body)?;
    let one: One = parsed(raw.get().as_bytes())?;
    let is_the_one = one.metadata.name == address.name && one.metadata.namespace == address.namespace;
    if one.is_of(address.resource, part) && is_the_one {
        check_texts(&one.metadata).map_err(|text| Failure::new(cause::GARBAGE, text))?;
        return Ok((one.metadata, raw));
    }
    let what = format!("{} {} {:?}", one.api_version, one.kind, one.metadata.name);
    Err(Failure::new(cause::GARBAGE, format!("it is about something else ({})", brief(&what))))
}

/// The answer to the question for a page.
pub(super) fn listed(
    of: &Cluster,
    query: &ListQuery<'_>,
    status: StatusCode,
    body: &[u8],
) -> Result<Page, Failure> {
    let whole = query.part == Part::Whole;
    let (objects, next) =
        page(of, query, status, body, |wire, raw| object(wire, whole.then(|| raw.to_owned())))?;
    Ok(Page { objects, next })
}

/// An object, with its owners as far as they can be any. API servers ask of an owner's texts only that they are not empty, so
/// whoever may write one object could otherwise make its whole List nonsense. An owner that is none is an unknown one: it stays
/// there without a word, since what owns an object decides whether that stays.
fn object(wire: Wire, raw: Option<Box<RawValue>>) -> Object {
    let mut object = wire.object(raw);
    for owner in &mut object.owners {
        let Owner { api_version, kind, name, uid } = &*owner;
        if [api_version, kind, name, uid].into_iter().any(|text| oddity(text).is_some()) {
            *owner = Owner::default();
        }
    }
    object
}

/// The same, of which something else is kept than objects; and where the next page begins.
pub(super) fn page<T>(
    of: &Cluster,
    query: &ListQuery<'_>,
    status: StatusCode,
    body: &[u8],
    keep: impl FnMut(Wire, &RawValue) -> T,
) -> Result<(Vec<T>, Option<String>), Failure> {
    if status != StatusCode::OK {
        return Err(refused(of, status, body, "list", query.resource));
    }
    many(query, body, keep).map_err(|failure| unusable(of, &failure))
}

fn many<T>(
    query: &ListQuery<'_>,
    body: &[u8],
    mut keep: impl FnMut(Wire, &RawValue) -> T,
) -> Result<(Vec<T>, Option<String>), Failure> {
    let garbage = |text| Failure::new(cause::GARBAGE, text);
    check_strings(body)?;
    let mut json = serde_json::Deserializer::from_slice(body);
    let most = usize::try_from(query.limit).unwrap_or(usize::MAX);
    let list = AtMost(most).deserialize(&mut json).and_then(|list| json.end().map(|()| list));
    let list = list.map_err(|error| not_understood(&error, body))?;
    list.check(query).map_err(garbage)?;
    let mut kept = Vec::with_capacity(list.items.len());
    let mut allowance = Allowance::default();
    for raw in list.items {
        let mut one: One = parsed(raw.get().as_bytes())?;
        one.check_item(query).map_err(garbage)?;
        allowance.take(&mut one.metadata).map_err(|text| Failure::new(cause::TOO_LONG, text))?;
        kept.push(keep(one.metadata, raw));
    }
    Ok((kept, list.metadata.r#continue.filter(|token| !token.is_empty())))
}

/// Says whose answer it is that makes no sense.
fn unusable(of: &Cluster, failure: &Failure) -> Failure {
    let who = if *of == Cluster::Local { "the API server" } else { of.name() };
    Failure::new(failure.cause.code, format!("{who}'s answer cannot be used: {}", failure.cause.text))
}

fn parsed<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T, Failure> {
    check_strings(body)?;
    serde_json::from_slice(body).map_err(|error| not_understood(&error, body))
}

/// That it is something, and has no string in it that is longer than any of an object's: a parser repeats the string that it
/// did not expect, escaped.
fn check_strings(body: &[u8]) -> Result<(), Failure> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(Failure::new(cause::GARBAGE, "the answer is empty"));
    }
    if body.len() <= LONGEST_STRING {
        return Ok(());
    }
    let (mut length, mut is_inside, mut is_escaped) = (0_usize, false, false);
    for &byte in body {
        let is_quote = byte == b'"' && !is_escaped;
        is_inside ^= is_quote;
        is_escaped = byte == b'\\' && !is_escaped;
        length = if is_inside { length + 1 } else { 0 };
        if length > LONGEST_STRING {
            // A page of HTML may look like that too; what begins as JSON does may be an object that is like no other.
            let is_json = body.trim_ascii_start().starts_with(b"{");
            let code = if is_json { cause::TOO_LONG } else { cause::GARBAGE };
            return Err(Failure::new(code, "the answer has a string of more than 1 MiB in it"));
        }
    }
    Ok(())
}

/// What makes a text nobody's name. It is neither repeated to people nor kept while others are read.
fn oddity(text: &str) -> Option<&'static str> {
    if text.len() > LONGEST_NAME {
        Some("is longer than 253 bytes")
    } else if text.contains(is_unprintable) {
        Some("has control characters in it")
    } else {
        None
    }
}

/// Names and uids are what Kubernetes takes for one, or the answer is not one of Kubernetes.
fn check_texts(metadata: &Wire) -> Result<(), String> {
    for (what, text) in
        [("name", &metadata.name), ("namespace", &metadata.namespace), ("uid", metadata.uid())]
    {
        let slash = || text.contains('/').then_some("has a slash in it");
        let Some(why) = oddity(text).or_else(slash) else { continue };
        return Err(format!(
            "an object's {what} {why} ({:?})",
            brief(&text.chars().take(40).collect::<String>())
        ));
    }
    Ok(())
}

fn refused(of: &Cluster, status: StatusCode, body: &[u8], verb: &str, resource: &Resource) -> Failure {
    let own = || {
        if is_not_served(status, body) {
            not_served("the API server", resource)
        } else {
            refusal(status, body, verb, resource)
        }
    };
    match of {
        Cluster::Member(member) => member::refusal(member, status, body, verb, resource),
        Cluster::Local => own(),
        Cluster::Context(name) | Cluster::Secret(_, name) => {
            let failure = own();
            let cause = Cause::new(failure.cause.code, format!("{name}: {}", failure.cause.text));
            Failure { cause, ..failure }
        }
    }
}

/// A 404 for the path and not for an object on it: what an API server says of a group or version that it does not serve, in
/// plain text (`http.NotFound`) or as a Status without a name.
pub(super) fn is_not_served(status: StatusCode, body: &[u8]) -> bool {
    if status != StatusCode::NOT_FOUND {
        return false;
    }
    if body.trim_ascii() == b"404 page not found" {
        return true;
    }
    serde_json::from_slice(body).is_ok_and(|told: Status| {
        told.kind == "Status"
            && told.reason == "NotFound"
            && told.details.is_none_or(|details| details.name.is_empty())
    })
}

pub(super) fn not_served(who: &str, resource: &Resource) -> Failure {
    let version = resource.api_version();
    Failure::new(cause::NOT_SERVED, format!("{who} does not serve {resource} in {version} (404)"))
}

impl One {
    fn is_of(&self, resource: &Resource, part: Part) -> bool {
        match self.kind.as_str() {
            "PartialObjectMetadata" => part == Part::Metadata && self.api_version == "meta.k8s.io/v1",
            "" | "Status" => false,
            kind => {
                self.api_version == resource.api_version() && !kind.ends_with("List") && resource.may_be(kind)
            }
        }
    }

    /// Items of a List need not say what they are (those of Kubernetes' own kinds do not), but must not say anything else.
    fn check_item(&self, query: &ListQuery<'_>) -> Result<(), String> {
        let says_nothing = self.kind.is_empty() && self.api_version.is_empty();
        if !says_nothing && !self.is_of(query.resource, query.part) {
            let what = format!("{} {}", self.api_version, self.kind);
            return Err(format!("the List holds something else ({})", brief(&what)));
        }
        if self.metadata.name.is_empty() {
            return Err("the List holds objects without names".to_owned());
        }
        check_texts(&self.metadata)?;
        if !query.namespace.is_empty() && self.metadata.namespace != query.namespace {
            let namespace = brief(&self.metadata.namespace);
            return Err(format!("the List holds objects of another namespace ({namespace:?})"));
        }
        Ok(())
    }
}

impl Many<'_> {
    fn check(&self, query: &ListQuery<'_>) -> Result<(), String> {
        let is_of_kind = match self.kind.strip_suffix("List") {
            Some("PartialObjectMetadata") => {
                query.part == Part::Metadata && self.api_version == "meta.k8s.io/v1"
            }
            None | Some("") => false,
            Some(singular) => {
                self.api_version == query.resource.api_version() && query.resource.may_be(singular)
            }
        };
        if !is_of_kind || self.metadata.resource_version.is_empty() {
            let what = format!("{} {}", self.api_version, self.kind);
            return Err(format!("the answer is no List of {} ({})", query.resource, brief(&what)));
        }
        let next = self.metadata.r#continue.as_deref().unwrap_or_default();
        if next.is_empty() && self.metadata.remaining_item_count.is_some_and(|count| count > 0) {
            return Err("the List says that there is more, and not where".to_owned());
        }
        if !next.is_empty() && Some(next) == query.continue_token {
            return Err("the List does not end: a page names itself as the next one".to_owned());
        }
        Ok(())
    }
}

/// Reads a List whose items are at most so many. Real API servers keep to the limit of a question to the newest state.
struct AtMost(usize);

impl<'b> DeserializeSeed<'b> for AtMost {
    type Value = Many<'b>;

    fn deserialize<D: Deserializer<'b>>(self, deserializer: D) -> Result<Many<'b>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'b> Visitor<'b> for AtMost {
    type Value = Many<'b>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a List")
    }

    fn visit_map<A: MapAccess<'b>>(self, mut map: A) -> Result<Many<'b>, A::Error> {
        #[derive(Deserialize)]
        #[serde(field_identifier, rename_all = "camelCase")]
        enum Key {
            ApiVersion,
            Kind,
            Metadata,
            Items,
            #[serde(other)]
            Other,
        }
        let (mut api_version, mut kind, mut metadata, mut items) = (None, None, None, None);
        while let Some(key) = map.next_key()? {
            let is_second = match key {
                Key::ApiVersion => api_version.replace(map.next_value()?).is_some(),
                Key::Kind => kind.replace(map.next_value()?).is_some(),
                Key::Metadata => metadata.replace(map.next_value()?).is_some(),
                Key::Items => items.replace(map.next_value_seed(Items(self.0))?).is_some(),
                Key::Other => map.next_value::<IgnoredAny>().map(|_| false)?,
            };
            if is_second {
                return Err(A::Error::custom("a key stands twice, and hides what stood there first"));
            }
        }
        let missing = A::Error::missing_field;
        Ok(Many {
            api_version: api_version.ok_or_else(|| missing("apiVersion"))?,
            kind: kind.ok_or_else(|| missing("kind"))?,
            metadata: metadata.ok_or_else(|| missing("metadata"))?,
            // The key must stand there: what has none is no List.
            items: items.ok_or_else(|| missing("items"))?,
        })
    }
}

struct Items(usize);

impl<'b> DeserializeSeed<'b> for Items {
    type Value = Vec<&'b RawValue>;

    fn deserialize<D: Deserializer<'b>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'b> Visitor<'b> for Items {
    type Value = Vec<&'b RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("items")
    }

    // Go writes an empty slice as null.
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_seq<A: SeqAccess<'b>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            if items.len() == self.0 {
                let text = format!("the List holds more than the {} objects that were asked for", self.0);
                return Err(A::Error::custom(text));
            }
            items.push(item);
        }
        Ok(items)
    }
}
