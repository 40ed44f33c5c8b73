//! The static binaries of `scripts/static.sh` in images without a base, as `deploy/image` makes them.

use std::path::{Path, PathBuf};

use e2e::certificates::{Ca, by_token, kubeconfig};
use e2e::image::{Recipe, RootFs};
use e2e::prelude::*;

use super::environment::{Environment, installed, values};
use crate::cases::objects::contains_all;

const IMAGE: &str = "durward.test/durward:static";
const NODE_IMAGE: &str = "durward.test/durward-node:static";

/// The limit of the binary, which is the image, in bytes. Measured: 23.5 MB, 20 MB is the goal.
const LIMIT: u64 = 25_000_000;

/// The address of the API server for pods, which only DNS can resolve.
const SERVER: &str = "https://kubernetes.default.svc";

#[e2e::case(Soak)]
fn static_binaries_run_in_images_without_a_base(context: &'static TestContext) -> Result<()> {
    let environment = installed(context)?;
    let (durward, node) = (program("durward")?, program("durward-node")?);
    for program in [&durward, &node] {
        let listed = context.supervisor()?.run(
            e2e::supervisor::Tool::new("ldd", "ldd").argument(program.display().to_string()),
            WAIT_LIMIT,
        )?;
        contains_all(&format!("{}{}", listed.stdout, listed.stderr), &["static"])?;
    }
    let size = durward.metadata()?.len();
    print(format_args!("the static durward has {size} bytes, durward-node {}", node.metadata()?.len()));
    ensure!(size < LIMIT, "{} has {size} bytes", durward.display());
    let supervisor = context.supervisor()?;
    let root = RootFs::default().file_as("/usr/bin/durward", &durward)?;
    let start = |program: &str| json!({"Entrypoint": [program], "User": "65532:65532"});
    let image = Recipe::new(IMAGE, root.clone()).starting(start("/usr/bin/durward"));
    environment.node.import(&image.build(&supervisor)?)?;
    let root = root.file_as("/usr/bin/durward-node", &node)?;
    let image = Recipe::new(NODE_IMAGE, root).starting(start("/usr/bin/durward-node"));
    environment.node.import(&image.build(&supervisor)?)?;

    environment.resolves_services_and_trusts_the_ca()?;
    let shop = environment.node.namespace("shop")?;
    let version = json!({"image": NODE_IMAGE, "imagePullPolicy": "Never", "args": ["--version"]});
    shop.pod("node").container_like("app", version).with(once).is_admitted()?;
    environment.node.pod(&shop, "node").is_done()?;

    let mut with_static = values();
    with_static["image"]["tag"] = json!("static");
    environment.install(&with_static)?;
    environment.audit.has_no_forbidden_requests()?;
    environment.install(&values()).map(drop)
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
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"kubeconfig": config}});
            self.api().create(&shop.path("configmaps"), &map)?.succeeded()?;
            let args = ["impact", &format!("ns/{}", empty.name()), "--kubeconfig", "/config/kubeconfig"];
            let container = json!({
                "image": IMAGE, "imagePullPolicy": "Never", "args": args,
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

/// Returns a program that `scripts/static.sh` has built.
fn program(name: &str) -> Result<PathBuf> {
    let target = format!("../target/{}-unknown-linux-gnu/dist", std::env::consts::ARCH);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(target).join(name);
    ensure!(path.is_file(), "{} is missing: run scripts/static.sh, as `make soak` does", path.display());
    Ok(path)
}
