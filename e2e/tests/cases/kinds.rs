//! The tables of kinds in `crates/evaluator/policy/src/kinds` are those of the API servers.
//!
//! The table of Kubernetes has several minors; here the rows of the pinned one are compared. `DURWARD_BLESS=1 make e2e
//! TEST=kinds::` writes the table of Karmada.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use e2e::binaries::Binary;
use e2e::prelude::*;
use e2e::supervisor::Tool;

/// Without Go's build cache, the program takes a minute.
const BUILT_WITHIN: Duration = Duration::from_secs(900);

/// Group, version, kind, resource and scope.
type Row = [String; 5];

#[e2e::case]
fn the_table_of_kinds_is_that_of_the_api_server(context: &TestContext) -> Result<()> {
    let everything = Options::named("kinds")
        .flag("--runtime-config=api/all=true")
        .flag("--feature-gates=AllAlpha=true,AllBeta=true");
    let cluster = context.own_cluster(&everything)?;
    let version = Binary::ApiServer.version()?;
    let minor: u8 = version.split('.').nth(1).context("no minor")?.parse()?;
    let served = discover(cluster.api(), |_| true)?;
    compare("builtin.tsv", &version, &stored("builtin.tsv", minor)?, &served)
}

#[e2e::case]
fn the_table_of_karmadas_kinds_is_that_of_its_api_server(context: &TestContext) -> Result<()> {
    let version = Binary::KarmadaAggregated.version()?;
    let fleet = context.fleet()?;
    let served = discover(fleet.karmada().api(), |group| group.ends_with(".karmada.io"))?;
    if std::env::var_os("DURWARD_BLESS").is_some() {
        let head = format!(
            "# Kinds of Karmada {version}: group, version, kind, resource, scope.\n\
             # `DURWARD_BLESS=1 make e2e TEST=kinds::` writes this file.\n"
        );
        let lines: String = served.iter().map(|row| row.join("\t") + "\n").collect();
        return std::fs::write(path("karmada.tsv"), head + &lines).context("cannot write karmada.tsv");
    }
    compare("karmada.tsv", &version, &stored("karmada.tsv", 0)?, &served)
}

/// The table changes only with the pinned Go modules. Without Go's build cache, this takes a minute of both processors.
#[e2e::case(Soak)]
fn the_table_of_types_is_that_of_the_go_types(context: &TestContext) -> Result<()> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/evaluator/policy/tools/types");
    let go = Tool::new("go-run-types", "go").directory(&directory).arguments(["run", ".", "-check"]);
    context.supervisor()?.run(go, BUILT_WITHIN)?.succeeded()?;
    Ok(())
}

/// Returns the kinds of these groups that the API server serves.
fn discover(api: &Api, is_wanted: impl Fn(&str) -> bool) -> Result<BTreeSet<Row>> {
    let groups = api.get("/apis")?.succeeded()?.body;
    let versions = |group: &Value| group["versions"].as_array().cloned().unwrap_or_default();
    let named = groups["groups"].as_array().into_iter().flatten().flat_map(versions);
    let named = named.filter_map(|version| version["groupVersion"].as_str().map(ToOwned::to_owned));
    let mut rows = BTreeSet::new();
    for api_version in named.chain(["v1".to_owned()]) {
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        if !is_wanted(group) {
            continue;
        }
        let path = if group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{api_version}") };
        let resources = api.get(&path)?.succeeded()?.body["resources"].take();
        for resource in resources.as_array().with_context(|| format!("no resources at {path}"))? {
            let text = |field: &str| {
                resource[field]
                    .as_str()
                    .with_context(|| format!("no {field} in {resource}"))
                    .map(ToOwned::to_owned)
            };
            let plural = text("name")?;
            // Manifests do not name subresources.
            if plural.contains('/') {
                continue;
            }
            let scope = if resource["namespaced"] == true { "Namespaced" } else { "Cluster" };
            rows.insert([group.to_owned(), version.to_owned(), text("kind")?, plural, scope.to_owned()]);
        }
    }
    ensure!(!rows.is_empty(), "the API server serves none of the groups");
    Ok(rows)
}

fn path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/evaluator/policy/src/kinds").join(file)
}

/// Returns the rows of a table that a minor serves. Rows without minors are those of any.
fn stored(file: &str, minor: u8) -> Result<BTreeSet<Row>> {
    let text = std::fs::read_to_string(path(file)).with_context(|| format!("cannot read {file}"))?;
    let mut rows = BTreeSet::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let columns: Vec<String> = line.split('\t').map(ToOwned::to_owned).collect();
        let (row, minors) = columns.split_first_chunk().with_context(|| format!("{file}: {line:?}"))?;
        let minors: Vec<u8> = minors.iter().map(|minor| minor.parse()).collect::<Result<_, _>>()?;
        if minors.iter().min().is_none_or(|first| *first <= minor)
            && minors.iter().max().is_none_or(|last| minor <= *last)
        {
            rows.insert(row.clone());
        }
    }
    Ok(rows)
}

fn compare(file: &str, version: &str, stored: &BTreeSet<Row>, served: &BTreeSet<Row>) -> Result<()> {
    let missing: Vec<_> = served.difference(stored).collect();
    let surplus: Vec<_> = stored.difference(served).collect();
    ensure!(
        missing.is_empty() && surplus.is_empty(),
        "{file} differs from {version}: missing {missing:#?}, surplus {surplus:#?}"
    );
    Ok(())
}
