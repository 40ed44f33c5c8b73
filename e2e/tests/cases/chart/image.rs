//! The files of `scripts/dist.sh`: the images of the static binaries run on the node, and the same commit gives the same bytes. A fresh
//! clone gives the images of `deploy/image/Containerfile`.

use std::path::{Path, PathBuf};

use e2e::certificates::{Ca, by_token, kubeconfig};
use e2e::image::{Recipe, RootFs};
use e2e::prelude::*;
use e2e::supervisor::Tool;

use super::configurations::HOME;
use super::environment::{Environment, installed, values};
use crate::cases::objects::contains_all;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The images' registry, if `IMAGES` is not set.
const REGISTRY: &str = "registry.example.com";

/// The limit of the binary, which is the image, in bytes.
const LIMIT: u64 = 30_000_000;

/// Two runs of the packaging. The first one of all builds Helm, which takes a minute.
const PACKAGED_WITHIN: Duration = Duration::from_secs(600);

/// A build of both binaries without anything in the target directory, on two busy processors.
const BUILT_WITHIN: Duration = Duration::from_secs(3600);

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

/// Does what a container engine does with `deploy/image/Containerfile`, on this host. A test in `lint` compares the file with these steps.
#[e2e::case(Soak)]
fn a_fresh_clone_gives_images_that_start(context: &'static TestContext) -> Result<()> {
    let environment = installed(context)?;
    let clone = context.directory("clone")?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").display().to_string();
    let supervisor = context.supervisor()?;
    let git = Tool::new("clone", "git").arguments(["clone", "--quiet", "--no-hardlinks", &root]);
    supervisor.run(git.argument(clone.display().to_string()), WAIT_LIMIT)?.succeeded()?;
    let ignored = std::fs::read_to_string(clone.join(".dockerignore"))?;
    let ignored = ignored.lines().filter(|line| !line.starts_with('#')).map(|line| clone.join(line));
    let remove = Tool::new("dockerignore", "rm").argument("-rf");
    let remove = remove.arguments(ignored.map(|path| path.display().to_string()));
    supervisor.run(remove, WAIT_LIMIT)?.succeeded()?;
    let began = std::time::Instant::now();
    let build = Tool::new("static", clone.join("scripts/static.sh")).directory(&clone);
    supervisor.run(build, BUILT_WITHIN)?.succeeded()?;
    print(format_args!("the clone was built in {} s", began.elapsed().as_secs()));

    let built = clone.join(format!("target/{}-unknown-linux-gnu/dist", std::env::consts::ARCH));
    let shop = environment.node.namespace("cloned")?;
    for (name, programs) in [("durward", &["durward"][..]), ("durward-node", &["durward", "durward-node"])] {
        let mut files = RootFs::default();
        for program in programs {
            files = files.file_as(&format!("/usr/bin/{program}"), &built.join(program))?;
        }
        let image = format!("durward.test/cloned-{name}:1");
        let start = json!({"Entrypoint": [format!("/usr/bin/{name}")], "User": "65532:65532"});
        let archive = Recipe::new(&image, files).starting(start).build(&supervisor)?;
        environment.node.import(&archive)?;
        let version = json!({"image": image, "imagePullPolicy": "Never", "args": ["--version"]});
        shop.pod(name).container_like("app", version).with(once).is_admitted()?;
        contains_all(&environment.node.pod(&shop, name).is_done()?.logs("app")?, &[name, VERSION])?;
    }
    Ok(())
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
