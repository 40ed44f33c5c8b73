//! The guard's section of the configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use admission::{LabelSelector, SelectorOperator};

use super::labels::Labels;
use crate::config::{Section, names};
use crate::terms::{Defaults, Terms};
use crate::world::etcd::{Client, Login, Material, Tls};

/// What the section says.
#[derive(Debug, Clone)]
pub(super) struct Config {
    /// The keys that every guard has.
    pub(super) terms: Terms,
    /// Where it is noted who is on the way out.
    pub(super) reservation: Book,
    /// What becomes of a deletion that loses data.
    pub(super) data_safety: Weight,
    /// What becomes of deletions in ensembles of one or two members, each of which is an outage.
    pub(super) small: Weight,
    /// What becomes of deletions while members are being added.
    pub(super) membership_change: Weight,
    /// What else is guarded beside pods.
    pub(super) also: Vec<Also>,
    /// How a deletion is let through in spite of all.
    pub(super) break_glass: BreakGlass,
    /// How long one member is waited for.
    pub(super) member_deadline: Duration,
    /// How many entries a member may be behind and count as healthy.
    pub(super) lag: u64,
    /// Which pods are members of what.
    pub(super) ensembles: Vec<Ensemble>,
}

/// Where it is noted who is on the way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Book {
    /// In a Lease of Durward's namespace: every replica sees it.
    Lease,
    /// In this process only.
    Local,
}

/// Whether something is only told or refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weight {
    /// A warning.
    Warn,
    /// A denial.
    Deny,
}

const WEIGHTS: [(&str, Weight); 2] = [("warn", Weight::Warn), ("deny", Weight::Deny)];

/// What is guarded beside pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Also {
    /// `StatefulSets` that are scaled below the quorum.
    Scale,
    /// Deletions of `StatefulSets`.
    StatefulSets,
    /// Deletions of claims that a member uses.
    Claims,
    /// Deletions of `PodDisruptionBudgets` over members.
    Budgets,
}

impl Also {
    const WORDS: [(&'static str, Self); 4] = [
        ("scale", Self::Scale),
        ("statefulsets", Self::StatefulSets),
        ("persistentvolumeclaims", Self::Claims),
        ("poddisruptionbudgets", Self::Budgets),
    ];
}

/// How a deletion is let through in spite of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BreakGlass {
    /// By annotations with reason and end, or by annotation and verb.
    Annotations,
    /// By annotation and verb only.
    Verb,
}

/// Pods that are members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ensemble {
    /// In which namespaces.
    pub(super) within: Within,
    /// Which pods there; those with a container that runs etcd where none.
    pub(super) selector: Option<LabelSelector>,
    /// Which of them are one ensemble.
    pub(super) group_by: GroupBy,
    /// How they are spoken to.
    pub(super) port: u16,
    /// The same; Secrets without a namespace are in the pods' own.
    pub(super) client: ClientConfig,
    /// What becomes of a member whose pod is deleted.
    pub(super) membership: Membership,
    /// What becomes of a leader.
    pub(super) leader: Leader,
}

/// In which namespaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Within {
    /// In this one.
    Named(String),
    /// In those with these labels.
    Labelled(LabelSelector),
}

/// Which pods are one ensemble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GroupBy {
    /// Those of one `StatefulSet`.
    StatefulSet,
    /// All that are chosen in one namespace.
    Selector,
}

/// What becomes of a member whose pod is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Membership {
    /// As its preStop hook says.
    Auto,
    /// It stays in the list: a quorum is one of all.
    Kept,
    /// It leaves the list: a quorum is one of the others.
    Removed,
}

/// What becomes of a leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leader {
    /// It hands over first.
    Transfer,
    /// People are refused, controllers as with transfer.
    Refuse,
    /// It may go.
    Allow,
}

const LEADERS: [(&str, Leader); 3] =
    [("transfer", Leader::Transfer), ("refuse", Leader::Refuse), ("allow", Leader::Allow)];

/// How members are spoken to, before it is known in which namespace they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ClientConfig {
    tls: Option<TlsConfig>,
    login: Option<LoginConfig>,
    is_open: bool,
    server_name: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct TlsConfig {
    secret: Option<String>,
    files: Option<(PathBuf, Option<(PathBuf, PathBuf)>)>,
    insecure: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum LoginConfig {
    Secret(String),
    Files(PathBuf, PathBuf),
}

impl ClientConfig {
    /// For members in this namespace.
    pub(super) fn client(&self, namespace: &str) -> Arc<Client> {
        let tls = self.tls.as_ref().map(|tls| {
            let secret = tls
                .secret
                .as_ref()
                .map(|name| Material::Secret { namespace: namespace.to_owned(), name: name.clone() });
            let files =
                tls.files.clone().map(|(authority, identity)| Material::Files { authority, identity });
            Tls { material: secret.or(files), server_name: self.server_name.clone(), insecure: tls.insecure }
        });
        let login = self.login.as_ref().map(|login| match login {
            LoginConfig::Secret(name) => {
                Login::Secret { namespace: namespace.to_owned(), name: name.clone() }
            }
            LoginConfig::Files(user, password) => {
                Login::Files { user: user.clone(), password: password.clone() }
            }
        });
        Arc::new(Client { tls, login, open: self.is_open })
    }

    /// The Secrets in the members' namespace that are read.
    pub(super) fn secrets(&self) -> Vec<&str> {
        let of_tls = self.tls.as_ref().and_then(|tls| tls.secret.as_deref());
        let of_login = self.login.as_ref().and_then(|login| match login {
            LoginConfig::Secret(name) => Some(name.as_str()),
            LoginConfig::Files(..) => None,
        });
        of_tls.into_iter().chain(of_login).collect()
    }
}

/// Longer than the API server waits for any webhook.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// What kubectl's `-l` takes, for people.
const SELECTOR: &str = "label selector as kubectl takes it, as app=etcd or app=etcd,tier in (a, b)";

/// Reads the section.
pub(super) fn read(section: &mut Section<'_>, defaults: Defaults) -> Config {
    let terms = Terms::read(section, defaults);
    let reservation = section.choice(
        "reservation",
        "Where it is noted which members are on their way out: a Lease in Durward's namespace for each ensemble, or this process alone (one replica only).",
        &[("lease", Book::Lease), ("local", Book::Local)],
        Book::Lease,
    );
    if reservation == Book::Lease && terms.install_namespace.is_empty() {
        let next = "name it in installNamespace, or set reservation: local and run one replica".to_owned();
        section.problem(
            "reservation",
            "is lease, and Durward runs in no namespace to keep one in",
            Some(next),
        );
    }
    let data_safety = section.choice(
        "dataSafety",
        "Deletions that lose data, as of a member whose data is in an emptyDir: warned of or denied.",
        &WEIGHTS,
        Weight::Warn,
    );
    let small = section.choice(
        "smallEnsembles",
        "Deletions in an ensemble of one or two members, each of which is an outage: warned of or denied.",
        &WEIGHTS,
        Weight::Warn,
    );
    let membership_change = section.choice(
        "membershipChange",
        "Deletions while the ensemble has learners, members that have not started, or a downgrade under way: warned of or denied.",
        &WEIGHTS,
        Weight::Warn,
    );
    let recognise = section.bool(
        "recognise",
        "Whether an ensemble's selector may be left out: its members are then the pods of its namespaces that run etcd.",
        false,
    );
    let leader = section.choice(
        "leader",
        "What becomes of a leader: it hands over first; or people are refused and controllers have it hand over; or it may go.",
        &LEADERS,
        Leader::Transfer,
    );
    let also = section.choices(
        "alsoGuard",
        "What is guarded beside pods: StatefulSets that are scaled below the quorum or deleted, claims of members, disruption budgets.",
        &Also::WORDS,
        &[],
    );
    let break_glass = section.choice(
        "breakGlass",
        "Who may delete in spite of all: whoever gives a reason and an end in annotations, or only callers with the verb break-glass.",
        &[("annotations", BreakGlass::Annotations), ("verb", BreakGlass::Verb)],
        BreakGlass::Annotations,
    );
    let member_deadline = section.duration(
        "memberDeadline",
        "How long one member is waited for; one that hangs costs no more than this.",
        "1s",
        LONGEST_WAIT,
    );
    if member_deadline.is_zero() {
        let next = "allowed: a time like 300ms or 1s".to_owned();
        section.problem("memberDeadline", "is no time in which anyone could answer", Some(next));
    }
    let lag = section.number(
        "lag",
        "How many entries of the log a member may be behind its leader and count as healthy.",
        5000,
        (1, 1_000_000),
    );
    let ensembles = section.sections("ensembles", "Which pods are members of etcd ensembles.", |s| {
        ensemble(s, recognise, leader, &terms.install_namespace)
    });
    // Whoever writes an empty list means it, as `config defaults` does.
    if section.is_written() && !section.has("ensembles") {
        let next = "add: ensembles: [{namespace: db, selector: app=etcd}]".to_owned();
        section.problem("ensembles", "names none, so nothing is guarded", Some(next));
    }
    Config {
        terms,
        reservation,
        data_safety,
        small,
        membership_change,
        also,
        break_glass,
        member_deadline,
        lag,
        ensembles,
    }
}

fn ensemble(section: &mut Section<'_>, recognise: bool, leader: Leader, install: &str) -> Ensemble {
    let within = within(section, install);
    let selector = section
        .parsed::<Labels, _>("selector", SELECTOR, "Its pods; may be left out where recognise is true.", None)
        .map(|Labels(selector)| selector);
    if section.is_written() && !section.has("selector") && !recognise {
        let next = "add: selector: app=etcd; or set recognise: true".to_owned();
        section.problem("selector", "is missing", Some(next));
    }
    let group_by = section.choice(
        "groupBy",
        "Which of them are one ensemble: those of one StatefulSet, or all that the selector chooses in a namespace.",
        &[("statefulset", GroupBy::StatefulSet), ("selector", GroupBy::Selector)],
        GroupBy::StatefulSet,
    );
    let (port, client) = section.section("client", "How the members are spoken to.", client);
    let membership = section.choice(
        "membership",
        "What becomes of a member whose pod is deleted: it stays in etcd's list, or is removed from it (auto: removed if the preStop hook says etcdctl member remove).",
        &[("auto", Membership::Auto), ("kept", Membership::Kept), ("removed", Membership::Removed)],
        Membership::Auto,
    );
    let own = section.optional_choice(
        "leader",
        "What becomes of its leader; as the guard's own key where absent.",
        &LEADERS,
    );
    Ensemble { within, selector, group_by, port, client, membership, leader: own.unwrap_or(leader) }
}

fn within(section: &mut Section<'_>, install: &str) -> Within {
    let read = section.has("namespace");
    let name = section.name("namespace", names::NAMESPACE, "Its namespace.", "", |text| {
        if text.is_empty() { Ok(()) } else { names::namespace(text) }
    });
    let selector = section
        .selector("namespaceSelector", "Or those with these labels: an ensemble, or several, in each.");
    if section.is_written() && read == selector.is_some() {
        let next = "write namespace: NAME, or namespaceSelector: {matchLabels: …}".to_owned();
        section.problem(
            "namespace",
            "not exactly one of namespace and namespaceSelector says where",
            Some(next),
        );
    }
    if read && !install.is_empty() && name == install {
        let next =
            "Durward leaves its own namespace alone; name another in installNamespace, or move the ensemble";
        section.problem("namespace", "is Durward's own", Some(next.to_owned()));
    }
    let asks = |selector: &LabelSelector| {
        let asks = |operator| matches!(operator, SelectorOperator::In | SelectorOperator::Exists);
        !selector.match_labels.is_empty() || selector.match_expressions.iter().any(|r| asks(r.operator))
    };
    if selector.as_ref().is_some_and(|selector| !asks(selector)) {
        let next = "add matchLabels, or an expression with In or Exists".to_owned();
        let why = "asks for no label, so that every namespace would be asked about that nobody labelled";
        section.problem("namespaceSelector", why, Some(next));
    }
    selector.map_or(Within::Named(name), Within::Labelled)
}

fn client(section: &mut Section<'_>) -> (u16, ClientConfig) {
    let port = section.number("port", "Where members serve clients.", 2379, (1, 65_535));
    let server_name = section.optional_text(
        "serverName",
        "DNS name",
        "The name in the members' certificates; the pod's address must be in them where absent.",
    );
    let has_tls = section.has("tls");
    if section.is_blank("tls") {
        let next = "write tls: {secret: NAME}, or leave it out for plain HTTP".to_owned();
        section.problem("tls", "stands there with nothing behind it", Some(next));
    }
    let tls = section.section("tls", "TLS to the members; plain HTTP where absent.", tls);
    let (login, is_open) =
        section.section("auth", "Who asks, where the ensemble has authentication on.", login);
    if login.is_some() && !is_open && (!has_tls || tls.insecure) {
        let next = "add tls with the ensemble's authority, or auth.insecure: true".to_owned();
        section.problem("auth", "would send a password to members that nobody verified", Some(next));
    }
    if server_name.is_some() && !has_tls {
        section.problem(
            "serverName",
            "says nothing without tls",
            Some("add: tls: {secret: NAME}".to_owned()),
        );
    }
    let tls = has_tls.then_some(tls);
    (u16::try_from(port).unwrap_or(2379), ClientConfig { tls, login, is_open, server_name })
}

fn tls(section: &mut Section<'_>) -> TlsConfig {
    let secret = section.optional_text(
        "secret",
        "name of a Secret",
        "A Secret in the members' namespace: ca.crt, and tls.crt with tls.key where they ask for a certificate.",
    );
    let authority = path(section, "authority", "Or files in PEM: the authority of their certificates.");
    let certificate = path(section, "certificate", "The certificate to show them.");
    let key = path(section, "key", "Its key.");
    let insecure = section.bool("insecure", "Whether their certificates are taken unverified.", false);
    if secret.is_some() && (authority.is_some() || certificate.is_some() || key.is_some()) {
        section.problem("secret", "stands beside files", Some("keep one of them".to_owned()));
    }
    if certificate.is_some() != key.is_some() {
        section.problem("certificate", "a certificate and its key belong together", None);
    }
    let identity = certificate.zip(key);
    if secret.is_none() && authority.is_none() && !insecure && section.is_written() {
        let next =
            "add secret: NAME, or authority: FILE; insecure: true takes anybody for a member".to_owned();
        section.problem("secret", "nothing says whose certificates are trusted", Some(next));
    }
    if authority.is_none() && identity.is_some() {
        let next = "add authority: FILE".to_owned();
        section.problem("authority", "is missing beside certificate and key", Some(next));
    }
    TlsConfig { secret, files: authority.map(|authority| (authority, identity)), insecure }
}

fn login(section: &mut Section<'_>) -> (Option<LoginConfig>, bool) {
    let secret = section.optional_text(
        "secret",
        "name of a Secret",
        "A Secret in the members' namespace: username and password.",
    );
    let user = path(section, "user", "Or files: one with the user's name,");
    let password = path(section, "password", "and one with the password.");
    let insecure =
        section.bool("insecure", "Whether the password may go to members that nobody verified.", false);
    if section.is_written() {
        let next = "write secret: NAME, or user: FILE and password: FILE".to_owned();
        match (&secret, &user, &password) {
            (Some(_), None, None) | (None, Some(_), Some(_)) => {}
            _ => section.problem(
                "secret",
                "not exactly one of a Secret and two files says who asks",
                Some(next),
            ),
        }
    }
    let files = user.zip(password).map(|(user, password)| LoginConfig::Files(user, password));
    (secret.map(LoginConfig::Secret).or(files), insecure)
}

/// A file; relative to the one that names it.
fn path(section: &mut Section<'_>, key: &'static str, doc: &'static str) -> Option<PathBuf> {
    let text = section.optional_text(key, "path", doc)?;
    let folder = Path::new(&section.place().file).parent().map(Path::to_path_buf);
    Some(folder.unwrap_or_default().join(text))
}

#[cfg(test)]
mod tests;
