//! How a pod opts in to the files, and how it reaches the API server.

use e2e::fault::{Fault, Proxy};
use e2e::prelude::*;

use super::environment::{
    DEFAULTS, OLD_OPT_IN, OPT_IN, OPTED_IN, await_injection, opted_in, scratch, shared,
};
use super::files::{DEFAULT_FILES, LxcfsChecks as _, STATUS};

/// Returns a pod with two containers, because all of them get the files.
fn web<'a>(shop: &'a Namespace<'_>, name: &str) -> Pod<'a> {
    shop.pod(name).container("app").container("side")
}

fn opted_in_web<'a>(shop: &'a Namespace<'_>, name: &str) -> Pod<'a> {
    web(shop, name).annotated(OPT_IN, "enabled")
}

#[e2e::case]
fn kubectl_apply_adds_files_and_a_second_apply_keeps_them(context: &'static TestContext) -> Result<()> {
    let fixture = shared(context)?;
    let shop = fixture.cluster.namespace("shop")?;
    let first = opted_in_web(&shop, "web").by_kubectl_apply().is_admitted()?.with_files(&DEFAULT_FILES)?;
    let again = opted_in_web(&shop, "web").by_kubectl_apply().is_admitted()?.with_files(&DEFAULT_FILES)?;
    let [first, again] = [first, again].map(|admitted| admitted.pod["metadata"]["resourceVersion"].clone());
    ensure!(first == again, "a second apply changed the pod");
    Ok(())
}

#[e2e::case]
fn server_side_apply_adds_files_and_a_second_apply_keeps_them(context: &'static TestContext) -> Result<()> {
    let fixture = shared(context)?;
    let shop = fixture.cluster.namespace("shop")?;
    opted_in_web(&shop, "web").by_server_side_apply().is_admitted()?.with_files(&DEFAULT_FILES)?;
    // The applier does not own the added fields, so the next apply keeps them.
    opted_in_web(&shop, "web").by_server_side_apply().is_admitted()?.with_files(&DEFAULT_FILES).map(drop)
}

#[e2e::case]
fn a_pod_with_a_generated_name_gets_files(context: &'static TestContext) -> Result<()> {
    let fixture = shared(context)?;
    let shop = fixture.cluster.namespace("shop")?;
    let admitted =
        opted_in_web(&shop, "web").with_generated_name().is_admitted()?.with_files(&DEFAULT_FILES)?;
    ensure!(admitted.name().starts_with("web-"), "its name is {}", admitted.name());
    Ok(())
}

#[e2e::case]
fn a_pod_of_a_deployment_gets_files(context: &'static TestContext) -> Result<()> {
    let fixture = shared(context)?;
    let shop = fixture.cluster.namespace("shop")?;
    opted_in_web(&shop, "web").from_a_deployment().is_admitted()?.with_files(&DEFAULT_FILES).map(drop)
}

#[e2e::case]
fn a_dry_run_returns_the_files_and_stores_nothing(context: &'static TestContext) -> Result<()> {
    let fixture = shared(context)?;
    let shop = fixture.cluster.namespace("shop")?;
    opted_in_web(&shop, "a").as_dry_run().is_admitted()?.with_files(&DEFAULT_FILES)?;
    opted_in_web(&shop, "b").by_kubectl_apply().as_dry_run().is_admitted()?.with_files(&DEFAULT_FILES)?;
    opted_in_web(&shop, "c").by_server_side_apply().as_dry_run().is_admitted()?.with_files(&DEFAULT_FILES)?;
    let pods = fixture.cluster.api().get(&shop.path("pods"))?.succeeded()?.body;
    ensure!(pods["items"] == json!([]), "dry runs stored {}", pods["items"]);
    Ok(())
}

#[e2e::case]
fn a_pod_opts_in_by_annotation_label_or_old_annotation(context: &'static TestContext) -> Result<()> {
    let fixture = shared(context)?;
    let shop = fixture.cluster.namespace("shop")?;
    opted_in_web(&shop, "by-annotation").is_admitted()?.with_files(&DEFAULT_FILES)?.without_warnings()?;
    web(&shop, "by-label")
        .labelled(OPT_IN, "enabled")
        .is_admitted()?
        .with_files(&DEFAULT_FILES)?
        .without_warnings()?;
    for yes in ["true", "yes"] {
        let pod = web(&shop, &format!("by-older-{yes}")).annotated(OLD_OPT_IN, yes);
        pod.is_admitted()?.with_files(&DEFAULT_FILES)?.without_warnings()?;
    }
    Ok(())
}

#[e2e::case]
fn a_namespace_opts_in_all_its_pods(context: &'static TestContext) -> Result<()> {
    let fixture = shared(context)?;
    let shop = fixture.cluster.labelled_namespace("shop", &OPTED_IN)?;
    web(&shop, "web").is_admitted()?.with_files(&DEFAULT_FILES)?.without_warnings()?;
    web(&shop, "deployed").from_a_deployment().is_admitted()?.with_files(&DEFAULT_FILES).map(drop)
}

#[e2e::case]
fn a_pod_can_opt_out_of_its_namespace(context: &'static TestContext) -> Result<()> {
    let fixture = shared(context)?;
    let shop = fixture.cluster.labelled_namespace("shop", &OPTED_IN)?;
    let pods = [
        web(&shop, "by-annotation").annotated(OPT_IN, "disabled"),
        web(&shop, "by-label").labelled(OPT_IN, "disabled"),
        web(&shop, "by-older-annotation").annotated(OLD_OPT_IN, "false"),
    ];
    for pod in pods {
        pod.is_admitted()?.untouched()?.without_warnings()?.without_annotation(STATUS)?;
    }
    // The namespace opts in a pod without a setting, so the setting of the pods above decided.
    web(&shop, "silent").is_admitted()?.with_files(&DEFAULT_FILES).map(drop)
}

#[e2e::case]
fn a_pod_chooses_files_and_containers(context: &'static TestContext) -> Result<()> {
    let fixture = shared(context)?;
    let shop = fixture.cluster.namespace("shop")?;
    opted_in_web(&shop, "fewer")
        .annotated("durward.dev/lxcfs-files", "meminfo,uptime")
        .is_admitted()?
        .with_files(&["meminfo", "uptime"])?;
    let admitted =
        opted_in_web(&shop, "one").annotated("durward.dev/lxcfs-containers", "!side").is_admitted()?;
    admitted
        .with_mounts_in(
            "app",
            &DEFAULT_FILES.map(|file| format!("/proc/{file}")).each_ref().map(String::as_str),
        )?
        .with_mounts_in("side", &[])
        .map(drop)
}

#[e2e::case]
fn a_new_namespace_is_read_before_the_watch_reports_it(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&scratch())?;
    let mut installation = Installation::by_url(context, &cluster, DEFAULTS)?;
    // The watch is slower than the pod: the proxy holds back all its events.
    let proxy = Proxy::before(cluster.url(), cluster.ca())?;
    let watch_fault = proxy.on("watch=true").answers(Fault::Silence);
    installation.use_cluster_url(&proxy.url())?;
    let durward = installation.serve().named("durward-behind").start_ready(context)?;
    installation.register()?;
    await_injection(&cluster.namespace("shop")?)?;
    for round in 0..20 {
        // Every other namespace opts in, so the state of the last one is wrong for the next one.
        let opts_in = round % 2 == 0;
        let labels = if opts_in { &OPTED_IN[..] } else { &[] };
        let shop = cluster.namespace_without_account("breath", labels)?;
        let pod = web(&shop, "silent").is_admitted()?.without_warnings()?;
        if opts_in {
            pod.with_files(&DEFAULT_FILES)?
        } else {
            pod.untouched()?
        };
        opted_in(&shop, "wanting").is_admitted()?.with_files(&DEFAULT_FILES)?.without_warnings()?;
    }
    ensure!(watch_fault.hits() > 0, "the server does not watch, so it could not be too late");
    let page = durward.page("/readyz?verbose")?;
    ensure!(page.status == 200, "the server has read no namespace at all: {}", page.body);
    Ok(())
}
