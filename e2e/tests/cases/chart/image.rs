//! The files of `scripts/dist.sh`: the images of the static binaries run on the node, and the same commit gives the same bytes.

use std::path::{Path, PathBuf};

use e2e::certificates::{Ca, by_token, kubeconfig};
use e2e::prelude::*;
use e2e::supervisor::Tool;

use super::configurations::HOME;
use super::environment::{Environment, installed, values};
use crate::cases::objects::contains_all;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The images' registry, if `IMAGES` is not set.
const REGISTRY: &str = "registry.example.com";

/// The limit of the binary, which is the image, in bytes.
const LIMIT: u64 = 20_000_000;

/// Two runs of the packaging. The first one of all builds Helm, which takes a minute.
const PACKAGED_WITHIN: Duration = Duration::from_secs(600);

/// The address of the API server for pods, which only DNS can resolve.
const SERVER: &str = "https://kubernetes.default.svc";

/// Without it, `durward impact` looks for Karmada's clusters, which the role `view` doesn't permit.
const CONFIGURATION: &str = r#"{"apiVersion": "durward.dev/v1alpha1", "kind": "Configuration", "guards": {"deletion": {"fleet": "none"}}}"#;

#[e2e::case(Soak)]
fn static_binaries_run_in_images_without_a_base(context: &'static TestContext) -> Result<()> {
    let environment = installed(context)?;
    let (durward, node) = (program("durward")?, program("durward-node")?);
    for program in [&durward, &node] {
        let ldd = Tool::new("ldd", "ldd").argument(program.display().to_string());
        let listed = context.supervisor()?.run(ldd, WAIT_LIMIT)?;
        contains_all(&format!("{}{}", listed.stdout, listed.stderr), &["static"])?;
    }
    let size = durward.metadata()?.len();
    print(format_args!("the static durward has {size} bytes, durward-node {}", node.metadata()?.len()));
    ensure!(size < LIMIT, "{} has {size} bytes", durward.display());
    for name in ["durward", "durward-node"] {
        environment.node.import(&distributed(&format!("{name}-{VERSION}-image-{}.tar", architecture()))?)?;
    }

    environment.resolves_services_and_trusts_the_ca()?;
    let shop = environment.node.namespace("shop")?;
    let version = json!({"image": image("durward-node"), "imagePullPolicy": "Never", "args": ["--version"]});
    shop.pod("node").container_like("app", version).with(once).is_admitted()?;
    let pod = environment.node.pod(&shop, "node").is_done()?;
    contains_all(&pod.logs("app")?, &["durward-node", VERSION])?;

    let mut released = values();
    released["image"] = json!({"repository": format!("{REGISTRY}/durward"), "pullPolicy": "Never"});
    environment.install(&released)?;
    environment.audit.has_no_forbidden_requests()?;
    environment.install(&values()).map(drop)
}

#[e2e::case(Soak)]
fn packaging_twice_gives_the_same_bytes(context: &'static TestContext) -> Result<()> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/dist.sh");
    let check = Tool::new("dist-check", script).argument("check");
    let output = context.supervisor()?.run(check, PACKAGED_WITHIN)?.succeeded()?;
    contains_all(&output.stdout, &["the same bytes"])
}

#[e2e::case(Soak)]
fn the_chart_archive_renders_like_the_chart(context: &'static TestContext) -> Result<()> {
    let helm = Helm::new(context)?;
    let (chart, archive) = (Helm::chart(), distributed(&format!("durward-chart-{VERSION}.tgz"))?);
    let values = chart.join("ci/all-values.yaml").display().to_string();
    let render = |chart: &Path, set: &str| {
        let chart = chart.display().to_string();
        let by_name =
            ["template", Helm::RELEASE, &chart, "--namespace", HOME, "--values", &values, "--set", set];
        helm.run(&by_name)?.succeeded().map(|output| output.stdout)
    };
    let without_digests = "image.digest=,node.image.digest=";
    let (expected, rendered) = (render(&chart, without_digests)?, render(&archive, without_digests)?);
    contains_all(&expected, &["kind: Deployment"])?;
    ensure!(rendered == expected, "{} differs from the chart: run scripts/dist.sh again", archive.display());

    let pinned = render(&archive, "node.label.enabled=true")?;
    let images = std::fs::read_to_string(distributed("images.txt")?)?;
    for image in images.lines().filter_map(|line| line.strip_suffix(" all")) {
        contains_all(&pinned, &[image])?;
    }
    Ok(())
}

impl Environment {
    /// Reads the API server by its Service's name, with a kubeconfig whose CA is the right one, and another one.
    fn resolves_services_and_trusts_the_ca(&self) -> Result<()> {
        let shop = self.node.namespace("reader")?;
        let empty = self.node.namespace("unused")?;
        let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let path = format!("{}/default/token", shop.path("serviceaccounts"));
        let answer = self.api().create(&path, &token)?.succeeded()?;
        let token = answer.body["status"]["token"].as_str().context("no token")?.to_owned();
        let binding = ["create", "rolebinding", "reader", "--clusterrole=view"];
        let account = format!("--serviceaccount={}:default", shop.name());
        let namespace = format!("--namespace={}", empty.name());
        let kubectl = self.node.cluster().kubectl();
        kubectl.run(&[&binding[..], &[&account, &namespace]].concat())?.succeeded()?;
        let other = Ca::new("another")?;
        for (name, ca, code, expected) in
            [("trusted", self.node.cluster().ca(), 0, ""), ("untrusted", &other, 3, "certificate")]
        {
            let config = kubeconfig(SERVER, ca, &by_token(&token)).to_string();
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {
                "kubeconfig": config, "durward.yaml": CONFIGURATION,
            }});
            self.api().create(&shop.path("configmaps"), &map)?.succeeded()?;
            let args = [
                "impact",
                &format!("ns/{}", empty.name()),
                "--config=/config/durward.yaml",
                "--kubeconfig=/config/kubeconfig",
            ];
            let container = json!({
                "image": image("durward"), "imagePullPolicy": "Never", "args": args,
                "volumeMounts": [{"name": "config", "mountPath": "/config"}],
            });
            let volume = json!([{"name": "config", "configMap": {"name": name}}]);
            shop.pod(name)
                .container_like("app", container)
                .with(once)
                .with(|pod| pod["spec"]["volumes"] = volume)
                .is_admitted()?;
            let pod = self.node.pod(&shop, name);
            let ended = |pod: &Value| {
                pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"].as_u64()
            };
            until(format_args!("{name} to end"), || {
                Ok((ended(&pod.object()?).is_some(), "it runs".to_owned()))
            })?;
            let log = pod.logs("app")?;
            ensure!(ended(&pod.object()?) == Some(code), "{name}: {log}");
            contains_all(&log, &[expected])?;
        }
        Ok(())
    }
}

fn once(pod: &mut Value) {
    pod["spec"]["restartPolicy"] = "Never".into();
}

/// Returns the name of an image of the archives.
fn image(name: &str) -> String {
    format!("{REGISTRY}/{name}:{VERSION}")
}

/// Returns a static program.
fn program(name: &str) -> Result<PathBuf> {
    built(&format!("{}-unknown-linux-gnu/dist/{name}", std::env::consts::ARCH))
}

/// Returns a file of a release.
fn distributed(name: &str) -> Result<PathBuf> {
    built(&format!("dist-out/{name}"))
}

fn built(path: &str) -> Result<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target").join(path);
    ensure!(path.is_file(), "{} is missing: run scripts/dist.sh, as `make soak` does", path.display());
    Ok(path)
}

/// Returns this host's architecture in the terms of images.
fn architecture() -> &'static str {
    if std::env::consts::ARCH == "aarch64" { "arm64" } else { "amd64" }
}
