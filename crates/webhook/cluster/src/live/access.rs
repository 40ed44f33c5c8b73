//! Finds API server and credentials: from flags, a kubeconfig, or the pod's service account.
//!
//! kube reads kubeconfigs, runs credential plugins and reads tokens again. This module selects the source and explains problems.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError, NamedContext};

use config::{Problem, nearest, with_sources};

/// The CA of the API server in a pod.
const POD_CA: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

/// How to find the API server.
///
/// The source is the first of: the named kubeconfig; `$KUBECONFIG`; `~/.kube/config`; the service account of the
/// pod. A kubeconfig that exists and is invalid is a problem: a user who names a cluster must not get another one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// `--kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    /// `--context`; the kubeconfig's current one where absent.
    pub context: Option<String>,
}

impl Access {
    /// Returns kube's configuration and the name of its source in messages.
    pub(super) async fn config(&self) -> Result<(Config, String), Problem> {
        match self.kubeconfig()? {
            None => Ok((self.in_cluster()?, "the service account of the pod".to_owned())),
            Some((kubeconfig, source)) => {
                let source = format!("kubeconfig {source}");
                Ok((config_of(kubeconfig, self.context.as_deref(), &source).await?, source))
            }
        }
    }

    /// Returns a hash of the kubeconfig's context and its files, or of the CA of the pod's service account.
    pub(super) fn version(&self) -> Result<u64, Problem> {
        let Some((kubeconfig, _)) = self.kubeconfig()? else {
            let mut hasher = DefaultHasher::new();
            std::fs::read(POD_CA).ok().hash(&mut hasher);
            return Ok(hasher.finish());
        };
        let name = self.context.as_ref().or(kubeconfig.current_context.as_ref());
        let context = kubeconfig.contexts.iter().find(|context| Some(&context.name) == name);
        Ok(context.map_or(0, |context| version(&kubeconfig, context)))
    }

    /// Returns the contexts of the kubeconfig as it is now.
    pub(super) fn contexts(&self) -> Result<Contexts, Problem> {
        Ok(match self.kubeconfig()? {
            None => Contexts { versions: Vec::new(), source: "no kubeconfig".to_owned() },
            Some((kubeconfig, source)) => {
                let version = |named: &NamedContext| (named.name.clone(), version(&kubeconfig, named));
                Contexts { versions: kubeconfig.contexts.iter().map(version).collect(), source }
            }
        })
    }

    /// Returns the kubeconfig and its name, if there is one.
    fn kubeconfig(&self) -> Result<Option<(Kubeconfig, String)>, Problem> {
        if let Some(path) = &self.kubeconfig {
            let name = path.display().to_string();
            return match Kubeconfig::read_from(path) {
                Ok(kubeconfig) => Ok(Some((kubeconfig, name))),
                Err(error) => Err(unreadable(
                    &name,
                    &error,
                    "use a readable file: --kubeconfig FILE, or kubeconfig in the configuration file",
                )),
            };
        }
        let from_environment = Kubeconfig::from_env().map_err(|error| {
            unreadable(
                "$KUBECONFIG",
                &error,
                "set KUBECONFIG to existing files, unset it, or use --kubeconfig FILE",
            )
        })?;
        if let Some(kubeconfig) = from_environment {
            return Ok(Some((kubeconfig, "$KUBECONFIG".to_owned())));
        }
        match Kubeconfig::read() {
            Ok(kubeconfig) => Ok(Some((kubeconfig, "~/.kube/config".to_owned()))),
            Err(KubeconfigError::FindPath) => Ok(None),
            Err(KubeconfigError::ReadConfig(error, _)) if error.kind() == std::io::ErrorKind::NotFound => {
                Ok(None)
            }
            Err(error) => {
                Err(unreadable("~/.kube/config", &error, "fix it, or use another one: --kubeconfig FILE"))
            }
        }
    }

    /// The pod's own service account.
    fn in_cluster(&self) -> Result<Config, Problem> {
        if let Some(context) = &self.context {
            let problem = Problem::new(format!("--context {context}")).why("no kubeconfig is available");
            return Err(problem.next("use --kubeconfig FILE too"));
        }
        Config::incluster().map_err(|error| {
            Problem::new("no API server is configured")
                .why(format!("there is no kubeconfig, and this is not a pod ({})", with_sources(&error)))
                .next("use --kubeconfig FILE; commands with --snapshot DIR need no API server")
        })
    }
}

/// Returns the problem of a kubeconfig that cannot be read.
fn unreadable(name: &str, error: &KubeconfigError, next: &str) -> Problem {
    // Its error quotes a path twice.
    let why = with_sources(error).replace("'\"", "\"").replace("\"'", "\"");
    Problem::new(format!("kubeconfig {name}")).why(why).next(next)
}

/// The contexts of a kubeconfig.
#[derive(Debug)]
pub(super) struct Contexts {
    /// Their names, each with a hash that changes with its server or its credentials.
    pub(super) versions: Vec<(String, u64)>,
    /// The name of the kubeconfig in messages.
    pub(super) source: String,
}

/// Returns a hash of the cluster and the user of a context, and of their files. The file of the token is omitted, because kube
/// reads it again.
fn version(kubeconfig: &Kubeconfig, named: &NamedContext) -> u64 {
    let mut hasher = DefaultHasher::new();
    let Some(context) = &named.context else { return 0 };
    let cluster = kubeconfig.clusters.iter().find(|cluster| cluster.name == context.cluster);
    let user = context.user.as_ref();
    let user = user.and_then(|user| kubeconfig.auth_infos.iter().find(|named| named.name == *user));
    let cluster = cluster.and_then(|cluster| cluster.cluster.as_ref());
    let user = user.and_then(|user| user.auth_info.as_ref());
    serde_json::to_vec(&cluster).unwrap_or_default().hash(&mut hasher);
    serde_json::to_vec(&user).unwrap_or_default().hash(&mut hasher);
    let files = [
        cluster.and_then(|cluster| cluster.certificate_authority.as_ref()),
        user.and_then(|user| user.client_certificate.as_ref()),
        user.and_then(|user| user.client_key.as_ref()),
    ];
    for file in files {
        file.and_then(|path| std::fs::read(path).ok()).hash(&mut hasher);
    }
    hasher.finish()
}

/// Returns kube's configuration for a context of a kubeconfig, by default the current one. `source` is the name of the
/// kubeconfig in messages.
pub(super) async fn config_of(
    kubeconfig: Kubeconfig,
    context: Option<&str>,
    source: &str,
) -> Result<Config, Problem> {
    let what = || Problem::new(source);
    if let Some(problem) = context_problem(&kubeconfig, context) {
        return Err(Problem { next: problem.next, ..what().why(problem.what) });
    }
    if let Some(proxy) = proxy_of(&kubeconfig, context) {
        let problem = what().why(format!("uses a proxy ({proxy}), which is not supported"));
        return Err(problem.next("use a kubeconfig whose server is reachable directly"));
    }
    let options =
        KubeConfigOptions { context: context.map(ToOwned::to_owned), ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .map_err(|error| what().why(with_sources(&error)).next("see: kubectl config view"))?;
    // kube accepts an empty list of CAs, and every handshake would fail.
    if config.root_cert.as_ref().is_some_and(Vec::is_empty) {
        let problem = what().why("its certificate-authority contains no certificate");
        return Err(problem.next("set it to the CA of the cluster in PEM: -----BEGIN CERTIFICATE-----"));
    }
    Ok(config)
}

fn context_problem(kubeconfig: &Kubeconfig, context: Option<&str>) -> Option<Problem> {
    let names: Vec<&str> = kubeconfig.contexts.iter().map(|context| context.name.as_str()).collect();
    let there = if names.is_empty() {
        "it has no contexts".to_owned()
    } else {
        format!("it has: {}", names.join(", "))
    };
    match context.or(kubeconfig.current_context.as_deref()).filter(|name| !name.is_empty()) {
        None => {
            Some(Problem::new("there is no current context").next(format!("use --context NAME; {there}")))
        }
        Some(name) if !names.contains(&name) => {
            let meant = nearest(name, names.iter().copied());
            let meant = meant.map_or_else(String::new, |meant| format!("; did you mean {meant:?}?"));
            Some(Problem::new(format!("unknown context {name:?}")).next(format!("{there}{meant}")))
        }
        Some(_) => None,
    }
}

/// Returns the proxy in the cluster's entry. `HTTPS_PROXY` is ignored.
fn proxy_of(kubeconfig: &Kubeconfig, context: Option<&str>) -> Option<String> {
    let name = context.or(kubeconfig.current_context.as_deref())?;
    let context = kubeconfig.contexts.iter().find(|context| context.name == name)?.context.as_ref()?;
    let cluster =
        kubeconfig.clusters.iter().find(|cluster| cluster.name == context.cluster)?.cluster.as_ref()?;
    cluster.proxy_url.clone().filter(|url| !url.is_empty())
}
