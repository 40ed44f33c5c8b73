//! `--list`: the objects that have annotations of overrides, and the Clusters that are acknowledged.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

use admission::Cause;
use cluster::fleet::{Cluster, Object};
use cluster::live::Access;
use cluster::{Clients, Resource};
use console::exit::{Exit, Outcome, Stop};
use console::output::{self, Style};
use guards::deletion::ACKNOWLEDGEMENT;
use guards::overrides::Overrides;
use guards::{GuardedNamespaces, GuardedObjects};

use super::objects::OVERRIDABLE;
use crate::clients::fleet::{all_pages, connect};
use crate::clients::leftovers;

/// Karmada's Clusters.
const CLUSTERS: Resource = Resource {
    group: Cow::Borrowed("cluster.karmada.io"),
    version: Cow::Borrowed("v1alpha1"),
    plural: Cow::Borrowed("clusters"),
};

/// The annotated objects, one line each, and what could not be listed.
pub(super) struct Listed {
    lines: Vec<String>,
    failures: Vec<Cause>,
}

/// Lists the objects with annotations of overrides, in one namespace or in all.
pub(super) async fn overridden(access: &Access, namespace: Option<&str>) -> Result<Listed, Stop> {
    let kinds = OVERRIDABLE.iter().filter(|kind| namespace.is_none() || kind.is_namespaced);
    let guarded: Vec<_> = kinds
        .map(|kind| GuardedObjects {
            resource: kind.listed(),
            namespaces: namespace.map_or(GuardedNamespaces::None, |one| GuardedNamespaces::Named(one.into())),
            overrides: Overrides::Annotation,
        })
        .collect();
    let clients = Clients::live(&Arc::new(connect(access).await?));
    let (found, failures) = leftovers::find(&*clients.reader, &guarded, SystemTime::now()).await;
    let line = |one: &leftovers::FoundLeftover| {
        let reason = one.leftover.reason.as_ref();
        let reason = reason.map(|reason| format!(" (reason: {reason})")).unwrap_or_default();
        format!("{}  {}{reason}", one.text(), one.leftover.effect)
    };
    Ok(Listed { lines: found.iter().map(line).collect(), failures })
}

/// Lists the Clusters with annotations of an acknowledgement.
pub(super) async fn acknowledged(access: &Access) -> Result<Listed, Stop> {
    let clients = Clients::live(&Arc::new(connect(access).await?));
    let line = |object: &Object| {
        let [reason, until] = ACKNOWLEDGEMENT.map(|key| object.metadata.annotations.get(key));
        (reason.is_some() || until.is_some()).then(|| {
            let shown = |value: Option<&String>| value.map_or("-", String::as_str).to_owned();
            format!("{}  until {} (reason: {})", object.name, shown(until), shown(reason))
        })
    };
    Ok(match all_pages(&*clients.reader, &Cluster::Local, &CLUSTERS).await {
        Ok(clusters) => Listed { lines: clusters.iter().filter_map(line).collect(), failures: Vec::new() },
        Err(why) => Listed { lines: Vec::new(), failures: vec![why] },
    })
}

/// Prints the list. The exit code is 1 if something could not be listed.
pub(super) fn print(listed: Listed, what: &str, style: Style) -> Outcome {
    for why in &listed.failures {
        output::note(format!("{} {}", style.yellow("not listed:"), output::foreign(&why.text)));
    }
    if listed.lines.is_empty() && listed.failures.is_empty() {
        output::note(format!("no object has annotations of an {what}"));
    }
    output::print(&output::lines(listed.lines))?;
    Ok(if listed.failures.is_empty() { Exit::Done } else { Exit::No })
}
