//! An upgrade from an earlier commit and a rollback to it, while pods are created and namespaces are deleted.
//!
//! Chart and program of that commit are built from the history of this repository, once.

use std::path::{Path, PathBuf};

use e2e::binaries;
use e2e::prelude::*;
use e2e::supervisor::Tool;

use super::configurations::HOME;
use super::environment::{Environment, exclusive, values};
use crate::cases::objects::{list, name_of};

/// The commit before native policies and server-side apply.
const EARLIER: &str = "49223bbe";

const EARLIER_IMAGE: &str = "durward.test/durward:earlier";

/// The time of a build on a loaded machine.
const BUILD_WITHIN: Duration = Duration::from_secs(3600);

/// The time after which the state after a change must be right.
const RIGHT_WITHIN: Duration = Duration::from_secs(120);

/// Pairs of a creation and a deletion between two steps.
const BETWEEN: usize = 30;

#[e2e::case(Soak)]
fn an_upgrade_and_a_rollback_fail_no_call(context: &'static TestContext) -> Result<()> {
    let sources = sources(context)?;
    let program = build(context, &sources)?;
    let environment = exclusive(context)?;
    let node = environment.node;
    let recipe = Image::Durward
        .recipe(context)?
        .changed(EARLIER_IMAGE, |root| root.stripped_as("/usr/bin/durward", &program))?;
    node.import(&recipe.build(&context.supervisor()?)?)?;
    environment.helm.uninstall(HOME, &["--ignore-not-found"])?.succeeded()?;
    environment.make_home()?;
    let mut earlier = values();
    earlier["image"]["tag"] = json!("earlier");
    let chart = sources.join("charts/durward");
    let wait = ["--wait", "--timeout", "5m"];
    environment.helm.with_chart(&chart, &["install"], HOME, &earlier, &wait)?.succeeded()?;
    environment.await_guards()?;
    ensure!(environment.bindings()?.is_empty(), "the earlier chart has bindings");

    let calls = environment.under_load(|load| {
        load.await_more(BETWEEN)?;
        environment.helm.with_values(&["upgrade"], HOME, &values(), &wait)?.succeeded()?;
        load.await_more(BETWEEN)?;
        environment.is_right("the upgrade", "1", |names| {
            ["deletion-labels", "etcd-namespaces", "etcd-pods", "install-namespace"]
                .iter()
                .all(|purpose| names.contains(&format!("durward-{purpose}")))
        })?;
        // The earlier version has written its Lease again after Helm deleted it, and Helm takes over no object.
        let lease = ["-n", HOME, "delete", "lease", "durward-webhooks", "--ignore-not-found"];
        environment.node.cluster().kubectl().run(&lease)?.succeeded()?;
        let rollback = [&["rollback", Helm::RELEASE, "--namespace", HOME][..], &wait].concat();
        environment.helm.run(&rollback)?.succeeded()?;
        load.await_more(BETWEEN)?;
        environment.is_right("the rollback", "earlier", <[String]>::is_empty)
    })?;
    print(format_args!("an upgrade and a rollback: 0 of {} calls failed", 2 * calls));
    // The entries of the earlier version deny and inject.
    environment.await_guards()
}

impl Environment {
    /// Returns the names of the bindings of native policies.
    fn bindings(&self) -> Result<Vec<String>> {
        let path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
        Ok(list(self.api(), path)?.iter().map(|one| name_of(one).to_owned()).collect())
    }

    /// Waits until two replicas of this tag run alone, the bindings are as expected, and the doctor of that version finds nothing. A
    /// minute later, after another pass of each replica, it finds nothing either.
    fn is_right(&self, what: &str, tag: &str, has_bindings: impl Fn(&[String]) -> bool) -> Result<()> {
        let state = || -> Result<Poll<()>> {
            let pods = self.home("pods")?;
            let image = format!("durward.test/durward:{tag}");
            let is_of = |pod: &Value| pod["spec"]["containers"][0]["image"] == *image;
            let bindings = self.bindings()?;
            if pods.len() != 2 || !pods.iter().all(is_of) || !has_bindings(&bindings) {
                return Ok(Poll::Pending(format!("{} pods, bindings {bindings:?}", pods.len())));
            }
            let doctor = ["-n", HOME, "exec", "deploy/durward", "--", "durward", "doctor", "install"];
            let config = ["--config", "/etc/durward/durward.yaml"];
            let output = self.node.cluster().kubectl().run(&[&doctor[..], &config].concat())?;
            Ok(if output.is_success() { Poll::Ready(()) } else { Poll::Pending(output.stdout) })
        };
        eventually(format_args!("{what} to be complete"), RIGHT_WITHIN, state)?;
        std::thread::sleep(Duration::from_secs(65));
        match state()? {
            Poll::Ready(()) => Ok(()),
            Poll::Pending(found) => bail!("a minute after {what}: {found}"),
        }
    }
}

/// Writes the files of the earlier commit into the cache.
fn sources(context: &TestContext) -> Result<PathBuf> {
    let directory = binaries::cache()?.join("earlier").join(EARLIER);
    if !directory.join("Cargo.lock").is_file() {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").display().to_string();
        std::fs::create_dir_all(&directory)?;
        let archive = directory.with_extension("tar").display().to_string();
        let supervisor = context.supervisor()?;
        let git = ["-C", &repository, "archive", "--output", &archive, EARLIER];
        let git = Tool::new("git", "git").arguments(git);
        let output = supervisor.run(git, Duration::from_secs(60))?;
        output.succeeded().with_context(|| format!("this clone lacks {EARLIER}: git fetch --unshallow"))?;
        let tar = ["-x", "-C", &directory.display().to_string(), "-f", &archive];
        supervisor.run(Tool::new("tar", "tar").arguments(tar), Duration::from_secs(60))?.succeeded()?;
    }
    Ok(directory)
}

fn build(context: &TestContext, sources: &Path) -> Result<PathBuf> {
    let program = sources.join("target/debug/durward");
    if !program.is_file() {
        print(format_args!("building durward of {EARLIER}"));
        let cargo = Tool::new("cargo-build-earlier", env!("CARGO"))
            .directory(sources)
            .arguments(["build", "--locked", "-p", "durward", "--bin", "durward"])
            .environment("CARGO_TARGET_DIR", sources.join("target").display().to_string())
            .environment("CARGO_PROFILE_DEV_DEBUG", "0");
        context.supervisor()?.run(cargo, BUILD_WITHIN)?.succeeded()?;
    }
    Ok(program)
}
