//! Parses a List in a snapshot: the output of `kubectl get` with `-o yaml` or `-o json`, or an answer of the API.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::Resource;
use crate::metadata::{Wire, null_is_empty};
use crate::world::{ObjectList, Scope};
use config::Problem;

/// Problems of one file that are reported, so that an invalid file does not fill the screen.
const MAX_PROBLEMS: usize = 10;

#[derive(Deserialize)]
#[serde(rename = "List", rename_all = "camelCase")]
struct ListFile<'t> {
    api_version: String,
    kind: String,
    #[serde(default)]
    metadata: ListMetadata,
    // Go encodes an empty slice as null. The key is required, because a file without it proves nothing.
    #[serde(borrow, deserialize_with = "null_is_empty")]
    items: Vec<&'t RawValue>,
    // The next keys belong to this format, not to Kubernetes: they limit which objects the List contains.
    field_selector: Option<String>,
    namespaces: Option<BTreeSet<String>>,
    names: Option<BTreeSet<String>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMetadata {
    r#continue: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    api_version: Option<String>,
    kind: Option<String>,
    metadata: Wire,
}

/// Reads a List of `resource`. `file` is its name for messages.
pub(super) fn read(file: &str, text: &str, resource: &Resource) -> Result<ObjectList, Vec<Problem>> {
    let invalid = |why: String| vec![Problem::new(format!("{file}: this is not a List")).why(why)];
    // JSON is not read as YAML, which takes several times longer.
    let json = if text.trim_start().starts_with('{') {
        Cow::Borrowed(text)
    } else {
        let options = serde_saphyr::options! { budget: None };
        let value: Value =
            serde_saphyr::from_str_with_options(text, options).map_err(|error| invalid(error.to_string()))?;
        Cow::Owned(value.to_string())
    };
    let list: ListFile<'_> = serde_json::from_str(&json).map_err(|error| invalid(error.to_string()))?;
    let reading = Reading { file, resource };
    reading.envelope(&list).map_err(|problem| vec![problem])?;

    let mut objects = ObjectList::new(Scope {
        is_whole: is_whole(&list),
        fields: list.field_selector.unwrap_or_default(),
        namespaces: list.namespaces,
        names: list.names,
    });
    let mut problems = Vec::new();
    let mut omitted = 0;
    for (at, item) in list.items.iter().enumerate() {
        match reading.item(at, item, &mut objects) {
            Ok(()) => {}
            Err(problem) if problems.len() < MAX_PROBLEMS => problems.push(problem),
            Err(_) => omitted += 1,
        }
    }
    if omitted > 0 {
        problems.push(Problem::new(format!("{file}: {omitted} more items are invalid")));
    }
    if problems.is_empty() { Ok(objects) } else { Err(problems) }
}

/// Whether all items are whole objects.
fn is_whole(list: &ListFile<'_>) -> bool {
    #[derive(Deserialize)]
    struct Kind {
        kind: Option<String>,
    }
    let is_metadata = |item: &&RawValue| {
        let kind = serde_json::from_str(item.get()).ok().and_then(|Kind { kind }| kind);
        kind.as_deref() == Some("PartialObjectMetadata")
    };
    list.kind != "PartialObjectMetadataList" && !list.items.iter().any(is_metadata)
}

struct Reading<'r> {
    file: &'r str,
    resource: &'r Resource,
}

impl Reading<'_> {
    /// Checks that the file is a complete List of the resource in its name.
    fn envelope(&self, list: &ListFile<'_>) -> Result<(), Problem> {
        let expected = match list.kind.as_str() {
            "List" => "v1".to_owned(),
            "PartialObjectMetadataList" => "meta.k8s.io/v1".to_owned(),
            _ => self.resource.api_version(),
        };
        let what = format!("kind {:?} of {:?}", list.kind, list.api_version);
        let problem = || Problem::new(format!("{}: {what}", self.file));
        let allowed = format!(
            "a List of {}: apiVersion {} with its own List kind, or v1 List, or meta.k8s.io/v1 PartialObjectMetadataList",
            self.resource,
            self.resource.api_version()
        );
        let Some(singular) = list.kind.strip_suffix("List") else {
            return Err(problem().why("is not a List").next(format!("allowed: {allowed}")));
        };
        if list.api_version != expected {
            return Err(problem().why("does not fit the file's name").next(format!("allowed: {allowed}")));
        }
        if !matches!(singular, "" | "PartialObjectMetadata") && !self.resource.matches_kind(singular) {
            return Err(problem()
                .why(format!("is not a List of {}", self.resource))
                .next("name the file for what it holds"));
        }
        if list.metadata.r#continue.as_ref().is_some_and(|token| !token.is_empty()) {
            let problem =
                Problem::new(format!("{}: metadata.continue", self.file)).why("is one page of a longer List");
            return Err(problem.next("record the whole List; a missing object would count as deleted"));
        }
        Ok(())
    }

    fn item(&self, at: usize, item: &RawValue, objects: &mut ObjectList) -> Result<(), Problem> {
        let problem = |what: &str| Problem::new(format!("{}: items[{at}]{what}", self.file));
        let Item { api_version, kind, metadata } =
            serde_json::from_str(item.get()).map_err(|error| problem("").why(bare(&error)))?;
        let partial = kind.as_deref() == Some("PartialObjectMetadata");
        let expected = if partial { "meta.k8s.io/v1".to_owned() } else { self.resource.api_version() };
        let (version, kind) = (api_version.as_deref().unwrap_or(&expected), kind.as_deref());
        if version != expected || kind.is_some_and(|kind| !partial && !self.resource.matches_kind(kind)) {
            let kind = kind.unwrap_or("without kind");
            return Err(problem("").why(format!("{version} {kind} is not one of the {}", self.resource)));
        }
        if metadata.name.is_empty() {
            return Err(problem(".metadata.name").why("is missing"));
        }
        let scope = &objects.scope;
        if scope.namespaces.as_ref().is_some_and(|namespaces| !namespaces.contains(&metadata.namespace))
            || scope.names.as_ref().is_some_and(|names| !names.contains(&metadata.name))
        {
            return Err(problem("").why("is not in the namespaces and names of the List"));
        }
        let (namespace, name) = (metadata.namespace.clone(), metadata.name.clone());
        let raw = scope.is_whole.then(|| item.to_owned());
        if objects.insert(metadata.object(raw)) {
            return Ok(());
        }
        let within =
            if namespace.is_empty() { String::new() } else { format!(" in namespace {namespace:?}") };
        Err(problem("").why(format!("{name:?}{within} is in the List twice")))
    }
}

/// Returns the text of a parse error without its position, which is relative to the item and not to the file. The position is in
/// words of `serde_json`: `src/error.rs`, Display for `ErrorImpl`.
fn bare(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}
