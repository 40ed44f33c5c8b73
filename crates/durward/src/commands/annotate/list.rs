//! `--list`: the objects that have annotations of overrides, and the Clusters that are acknowledged.

use std::collections::BTreeMap;
use std::time::SystemTime;

use cluster::live::{Access, client};
use console::exit::{Exit, Outcome, Stop};
use console::output::{self, Style};
use guards::deletion::ACKNOWLEDGEMENT;
use guards::overrides::{self, Overrides};
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::{Client, ResourceExt as _};

use super::objects::{OVERRIDABLE, clusters};

/// Objects in one request.
const PAGE: u32 = 500;

/// The annotated objects, one line each, and the kinds that could not be listed.
#[derive(Default)]
pub(super) struct Found {
    lines: Vec<String>,
    unread: Vec<String>,
}

/// Lists the objects with annotations of overrides, in one namespace or in all.
pub(super) async fn overridden(access: &Access, namespace: Option<&str>) -> Result<Found, Stop> {
    let (client, _) = client(access).await?;
    let now = SystemTime::now();
    let mut found = Found::default();
    for kind in OVERRIDABLE.iter().filter(|kind| namespace.is_none() || kind.is_namespaced) {
        let line = |object: &Listed| {
            let leftover =
                overrides::leftover(Overrides::Annotation, &object.name, &object.annotations, now)?;
            let reason = object.annotations.get(overrides::DELETE_REASON);
            let reason = reason.map(|reason| format!(" (reason: {reason})")).unwrap_or_default();
            Some(format!("{}/{}{}  {}{reason}", kind.word(), object.name, object.place(), leftover.effect))
        };
        found.add(&client, kind.word(), &kind.resource(), namespace, line).await;
    }
    Ok(found)
}

/// Lists the Clusters with annotations of an acknowledgement.
pub(super) async fn acknowledged(access: &Access) -> Result<Found, Stop> {
    let (client, _) = client(access).await?;
    let mut found = Found::default();
    let [reason, until] = ACKNOWLEDGEMENT;
    let line = |object: &Listed| {
        let value = |key| object.annotations.get(key).map(String::as_str);
        let (reason, until) = (value(reason), value(until));
        (reason.is_some() || until.is_some()).then(|| {
            format!("{}  until {} (reason: {})", object.name, until.unwrap_or("-"), reason.unwrap_or("-"))
        })
    };
    found.add(&client, "clusters", &clusters(), None, line).await;
    Ok(found)
}

/// Prints the list. The exit code is 1 if a kind could not be listed.
pub(super) fn print(found: Found, what: &str, style: Style) -> Outcome {
    for why in &found.unread {
        output::note(format!("{} {}", style.yellow("not listed:"), output::foreign(why)));
    }
    if found.lines.is_empty() && found.unread.is_empty() {
        output::note(format!("no object has annotations of an {what}"));
    }
    output::print(&output::lines(found.lines))?;
    Ok(if found.unread.is_empty() { Exit::Done } else { Exit::No })
}

/// The metadata of an object.
struct Listed {
    namespace: Option<String>,
    name: String,
    annotations: BTreeMap<String, String>,
}

impl Listed {
    fn place(&self) -> String {
        self.namespace.as_ref().map(|namespace| format!(" in {namespace}")).unwrap_or_default()
    }
}

impl Found {
    /// Adds the lines of one resource.
    async fn add(
        &mut self,
        client: &Client,
        word: &str,
        resource: &ApiResource,
        namespace: Option<&str>,
        line: impl Fn(&Listed) -> Option<String>,
    ) {
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
            None => Api::all_with(client.clone(), resource),
        };
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let page = match api.list_metadata(&params).await {
                Ok(page) => page,
                Err(error) => {
                    self.unread.push(format!("{word}: {error}"));
                    return;
                }
            };
            for object in page.items {
                let listed = Listed {
                    namespace: object.namespace(),
                    name: object.name_any(),
                    annotations: object.metadata.annotations.unwrap_or_default(),
                };
                self.lines.extend(line(&listed));
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return,
            }
        }
    }
}
