//! Parses the answers of clusters and checks that they answer the request.
//!
//! Any team can own a cluster of a fleet, and proxies pass on its answers. Therefore an answer counts only if its kind, names
//! and namespace match the request.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use admission::Cause;
use admission::text::is_printable;
use hyper::StatusCode;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::failure::{Failure, Status, brief, is_not_served, not_served, not_understood, refusal};
use super::karmada;
use crate::fleet::{Cluster, GetQuery, ListQuery, Object, Page, Part};
use crate::metadata::{Allowance, Wire};
use crate::{PAGE_LIMIT, Resource, cause};

/// The part of an object that Durward reads.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct One<'b> {
    #[serde(default, borrow)]
    pub(crate) api_version: Cow<'b, str>,
    #[serde(default, borrow)]
    pub(crate) kind: Cow<'b, str>,
    pub(crate) metadata: Wire,
}

/// An item of a List.
trait ListItem<'b>: Deserialize<'b> {
    fn one(&self) -> &One<'b>;
}

impl<'b> ListItem<'b> for One<'b> {
    fn one(&self) -> &Self {
        self
    }
}

/// An item with its text.
struct WholeItem<'b> {
    one: One<'b>,
    raw: &'b RawValue,
}

impl<'b> ListItem<'b> for WholeItem<'b> {
    fn one(&self) -> &One<'b> {
        &self.one
    }
}

impl<'b> Deserialize<'b> for WholeItem<'b> {
    fn deserialize<D: Deserializer<'b>>(deserializer: D) -> Result<Self, D::Error> {
        let raw: &RawValue = Deserialize::deserialize(deserializer)?;
        let one = serde_json::from_str(raw.get()).map_err(D::Error::custom)?;
        Ok(Self { one, raw })
    }
}

/// One page of a List.
pub(crate) struct ListPage<T> {
    /// The continue token, if more pages follow.
    pub(crate) next: Option<String>,
    pub(crate) items: Vec<T>,
}

/// The longest name that Kubernetes accepts for the objects that guards read.
const MAX_NAME: usize = 253;

/// The largest page that is requested.
const MAX_ITEMS: usize = PAGE_LIMIT as usize;

/// 1 MiB: the annotations of an object have at most 256 KiB, and JSON may escape each byte with several.
const MAX_STRING: usize = 1 << 20;

/// A List on the wire. Every List has these keys, each once.
#[derive(Deserialize)]
#[serde(rename = "List", rename_all = "camelCase", bound(deserialize = "I: ListItem<'de>"))]
struct WireList<'b, I> {
    #[serde(borrow)]
    api_version: Cow<'b, str>,
    #[serde(borrow)]
    kind: Cow<'b, str>,
    metadata: Map<ListMeta>,
    items: Items<I>,
}

/// The items of a List, null as none: Go encodes an empty slice as null.
struct Items<I> {
    parsed: Vec<I>,
    /// The limit that the next item exceeds. That item and those after it are left out.
    exceeded: Option<String>,
}

/// A JSON object. A derived struct also accepts an array of its fields, and `[]` would be metadata without a continue token.
struct Map<T>(T);

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta {
    resource_version: String,
    r#continue: Option<String>,
    remaining_item_count: Option<i64>,
}

/// Parses the answer to a request for one object.
pub(crate) fn object(
    of: &Cluster,
    query: GetQuery<'_>,
    status: StatusCode,
    body: &[u8],
) -> Result<Option<Object>, Failure> {
    let address = query.address;
    if status == StatusCode::NOT_FOUND {
        let answer = Status::of(body);
        if answer.is_about(address) && !karmada::is_gone(of, &answer) {
            return Ok(None);
        }
    }
    if status != StatusCode::OK {
        return Err(refused(of, status, body, "get", address.resource));
    }
    one(query, body).map(Some).map_err(|failure| unusable(of, &failure))
}

/// Parses one object and checks that it is the requested one.
fn one(query: GetQuery<'_>, body: &[u8]) -> Result<Object, Failure> {
    let GetQuery { address, part } = query;
    let Map(one): Map<One<'_>> = parse(body)?;
    let has_address = one.metadata.name == address.name && one.metadata.namespace == address.namespace;
    if !has_address || !one.is_of(address.resource, part) {
        let what = format!("{} {} {:?}", one.api_version, one.kind, one.metadata.name);
        let text = format!("it is about something else ({})", brief(&what));
        return Err(Failure::new(cause::GARBAGE, text));
    }
    check_names(&one.metadata).map_err(|text| Failure::new(cause::GARBAGE, text))?;
    let raw = if part == Part::Whole { Some(parse(body)?) } else { None };
    Ok(one.metadata.object(raw))
}

/// Parses the answer to a request for a page.
pub(crate) fn objects(
    of: &Cluster,
    query: &ListQuery<'_>,
    status: StatusCode,
    body: &[u8],
) -> Result<Page, Failure> {
    let page = match query.part {
        Part::Whole => {
            page(of, query, status, body, |WholeItem { one, raw }| one.metadata.object(Some(raw.to_owned())))?
        }
        Part::Metadata => metadata(of, query, status, body, |wire| wire.object(None))?,
    };
    Ok(Page { objects: page.items, next: page.next })
}

/// Parses a page of metadata and converts that of each item with `keep`.
pub(crate) fn metadata<T>(
    of: &Cluster,
    query: &ListQuery<'_>,
    status: StatusCode,
    body: &[u8],
    mut keep: impl FnMut(Wire) -> T,
) -> Result<ListPage<T>, Failure> {
    page(of, query, status, body, |one: One<'_>| keep(one.metadata))
}

fn page<'b, I: ListItem<'b>, T>(
    of: &Cluster,
    query: &ListQuery<'_>,
    status: StatusCode,
    body: &'b [u8],
    keep: impl FnMut(I) -> T,
) -> Result<ListPage<T>, Failure> {
    if status != StatusCode::OK {
        return Err(refused(of, status, body, "list", query.resource));
    }
    list(query, body, keep).map_err(|failure| unusable(of, &failure))
}

fn list<'b, I: ListItem<'b>, T>(
    query: &ListQuery<'_>,
    body: &'b [u8],
    keep: impl FnMut(I) -> T,
) -> Result<ListPage<T>, Failure> {
    let garbage = |text| Failure::new(cause::GARBAGE, text);
    let Map(mut list): Map<WireList<'b, I>> = parse(body)?;
    list.check(query).map_err(garbage)?;
    for item in &mut list.items.parsed {
        item.one().check_item(query).map_err(garbage)?;
    }
    if let Some(limit) = list.items.exceeded {
        return Err(Failure::new(cause::TOO_LONG, limit));
    }
    let next = list.metadata.0.r#continue.filter(|token| !token.is_empty());
    let items = list.items.parsed.into_iter().map(keep).collect();
    Ok(ListPage { next, items })
}

/// Adds the name of the cluster whose answer is unusable.
fn unusable(of: &Cluster, failure: &Failure) -> Failure {
    let who = if *of == Cluster::Local { "the API server" } else { of.name() };
    Failure::new(failure.cause.code, format!("{who}'s answer cannot be used: {}", failure.cause.text))
}

fn parse<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T, Failure> {
    check_strings(body)?;
    // `from_slice` checks the UTF-8 of each string. The whole body is checked once here, and `from_slice` reports the place of a fault.
    let parsed = match str::from_utf8(body) {
        Ok(text) => serde_json::from_str(text),
        Err(_) => serde_json::from_slice(body),
    };
    parsed.map_err(|error| not_understood(&error, body))
}

/// Rejects empty bodies and strings that no object can contain. A parser would repeat such a string in its error.
fn check_strings(body: &[u8]) -> Result<(), Failure> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(Failure::new(cause::GARBAGE, "the answer is empty"));
    }
    // A string of more than `MAX_STRING` bytes contains a whole block of half that size. A quote that does not follow a backslash
    // starts or ends a string, so a block with such a quote is not inside one. The slow search is needed only if a block has none.
    let has_quote =
        |block: &[u8]| block.windows(2).any(|pair| matches!(pair, [before, b'"'] if *before != b'\\'));
    if body.chunks_exact(MAX_STRING / 2).all(has_quote) {
        return Ok(());
    }
    let (mut length, mut is_inside, mut is_escaped) = (0_usize, false, false);
    for &byte in body {
        let is_quote = byte == b'"' && !is_escaped;
        is_inside ^= is_quote;
        is_escaped = byte == b'\\' && !is_escaped;
        length = if is_inside { length + 1 } else { 0 };
        if length > MAX_STRING {
            // A page of HTML can look like that too. A body that begins as JSON does may be an unusual object.
            let is_json = body.trim_ascii_start().starts_with(b"{");
            let code = if is_json { cause::TOO_LONG } else { cause::GARBAGE };
            return Err(Failure::new(code, "the answer contains a string of more than 1 MiB"));
        }
    }
    Ok(())
}

/// Returns why a text cannot be a name. Such texts are not shown to users and not cached.
fn invalid_name(text: &str) -> Option<&'static str> {
    if text.len() > MAX_NAME {
        Some("is longer than 253 bytes")
    } else if !text.chars().all(is_printable) {
        Some("contains control characters")
    } else {
        None
    }
}

/// Rejects names and uids that Kubernetes does not accept.
fn check_names(metadata: &Wire) -> Result<(), String> {
    for (what, text) in
        [("name", &metadata.name), ("namespace", &metadata.namespace), ("uid", metadata.uid())]
    {
        let slash = || text.contains('/').then_some("contains a slash");
        let Some(why) = invalid_name(text).or_else(slash) else { continue };
        let begins: String = text.chars().take(40).collect();
        return Err(format!("an object's {what} {why} ({:?})", brief(&begins)));
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
        Cluster::Member(member) => karmada::refusal(member, status, body, verb, resource),
        Cluster::Local => own(),
        Cluster::Context(name) | Cluster::Secret(_, name) => {
            let failure = own();
            let cause = Cause::new(failure.cause.code, format!("{name}: {}", failure.cause.text));
            Failure { cause, ..failure }
        }
    }
}

impl One<'_> {
    /// Whether it is an object of `resource`: its metadata as requested, or whole, from an API server that cannot reduce it.
    pub(crate) fn is_of(&self, resource: &Resource, part: Part) -> bool {
        match self.kind.as_ref() {
            "PartialObjectMetadata" => part == Part::Metadata && self.api_version == "meta.k8s.io/v1",
            "" | "Status" => false,
            kind => {
                self.api_version == resource.api_version()
                    && !kind.ends_with("List")
                    && resource.matches_kind(kind)
            }
        }
    }

    /// Checks an item of a List. Items of Kubernetes' own kinds have no kind; a kind that is present must be right.
    fn check_item(&self, query: &ListQuery<'_>) -> Result<(), String> {
        let has_no_kind = self.kind.is_empty() && self.api_version.is_empty();
        if !has_no_kind && !self.is_of(query.resource, query.part) {
            let what = format!("{} {}", self.api_version, self.kind);
            return Err(format!("the List contains something else ({})", brief(&what)));
        }
        if self.metadata.name.is_empty() {
            return Err("the List contains objects without names".to_owned());
        }
        check_names(&self.metadata)?;
        if !query.namespace.is_empty() && self.metadata.namespace != query.namespace {
            let namespace = brief(&self.metadata.namespace);
            return Err(format!("the List contains objects of another namespace ({namespace:?})"));
        }
        Ok(())
    }
}

impl<I> WireList<'_, I> {
    fn check(&self, query: &ListQuery<'_>) -> Result<(), String> {
        let is_of_kind = match self.kind.strip_suffix("List") {
            Some("PartialObjectMetadata") => {
                query.part == Part::Metadata && self.api_version == "meta.k8s.io/v1"
            }
            None | Some("") => false,
            Some(singular) => {
                self.api_version == query.resource.api_version() && query.resource.matches_kind(singular)
            }
        };
        if !is_of_kind || self.metadata.0.resource_version.is_empty() {
            let what = format!("{} {}", self.api_version, self.kind);
            return Err(format!("the answer is not a List of {} ({})", query.resource, brief(&what)));
        }
        // Real API servers respect the limit of a request.
        let max = usize::try_from(query.limit).unwrap_or(MAX_ITEMS);
        if self.items.parsed.len() > max {
            return Err(too_many_items(max));
        }
        let next = self.metadata.0.r#continue.as_deref().unwrap_or_default();
        if next.is_empty() && self.metadata.0.remaining_item_count.is_some_and(|count| count > 0) {
            return Err("the List is incomplete and has no continue token".to_owned());
        }
        if !next.is_empty() && Some(next) == query.continue_token {
            return Err("the List does not end: a page names itself as the next one".to_owned());
        }
        Ok(())
    }
}

/// Stops at the largest page, because a body can hold millions of tiny items.
impl<'b, T: Deserialize<'b>> Deserialize<'b> for Map<T> {
    fn deserialize<D: Deserializer<'b>>(deserializer: D) -> Result<Self, D::Error> {
        struct Only<T>(PhantomData<T>);
        impl<'b, T: Deserialize<'b>> Visitor<'b> for Only<T> {
            type Value = Map<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'b>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Map)
            }
        }
        deserializer.deserialize_map(Only(PhantomData))
    }
}

impl<'b, I: ListItem<'b>> Deserialize<'b> for Items<I> {
    fn deserialize<D: Deserializer<'b>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each<I>(PhantomData<I>);
        impl<'b, I: ListItem<'b>> Visitor<'b> for Each<I> {
            type Value = Items<I>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("items")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Items { parsed: Vec::new(), exceeded: None })
            }

            fn visit_seq<A: SeqAccess<'b>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let (mut parsed, mut allowance) = (Vec::new(), Allowance::default());
                while let Some(item) = seq.next_element::<I>()? {
                    if parsed.len() == MAX_ITEMS {
                        return Err(A::Error::custom(too_many_items(MAX_ITEMS)));
                    }
                    if let Err(limit) = allowance.take(&item.one().metadata) {
                        while seq.next_element::<IgnoredAny>()?.is_some() {}
                        return Ok(Items { parsed, exceeded: Some(limit) });
                    }
                    parsed.push(item);
                }
                Ok(Items { parsed, exceeded: None })
            }
        }
        deserializer.deserialize_any(Each(PhantomData))
    }
}

fn too_many_items(max: usize) -> String {
    format!("the List contains more than the {max} requested objects")
}
