//! Which API server is given what. A file may have guards for two of them: one asks about pods in the cluster in which Durward
//! runs, the other about deletions on a Karmada control plane. What is meant for one does harm on the other, and a pipe into
//! kubectl leads to one; so whoever prints for two must say which.

use cluster::fleet::Fleet;
use config::Problem;

use super::Part;

use crate::file::{File, Guarded, Reach};

/// One API server, and the guards that it asks.
pub(super) struct Plane<'f> {
    /// The guards.
    pub(super) guards: Vec<&'f Guarded>,
    /// As whom Durward asks there, where it is a Karmada control plane, which knows no service account of Durward's.
    pub(super) user: Option<String>,
}

impl Plane<'_> {
    /// Whether it is a Karmada control plane.
    pub(super) fn is_karmada(&self) -> bool {
        self.user.is_some()
    }

    /// Whether its guards look at clusters of their own beside it.
    pub(super) fn has_members(&self) -> bool {
        let fleets = self.guards.iter().filter_map(|guard| guard.configured.requirements().probes);
        fleets.into_iter().any(|rounds| rounds.fleet != Fleet::None)
    }

    /// How it calls Durward. A Karmada control plane has no Services of its own, so it calls one of the cluster in which it runs
    /// by its name, as it calls Karmada's own webhook.
    pub(super) fn reach(&self, given: &Reach) -> Reach {
        match given {
            Reach::Service { name, namespace, port } if self.is_karmada() => {
                Reach::Url(format!("https://{name}.{namespace}.svc:{port}"))
            }
            given => given.clone(),
        }
    }

    fn names(&self) -> String {
        self.guards.iter().map(|guard| guard.kind.name()).collect::<Vec<_>>().join(", ")
    }
}

/// The API servers that the guards of a file are asked by, the one in whose cluster Durward runs first.
pub(super) fn all(file: &File) -> Vec<Plane<'_>> {
    let mut planes: Vec<(Option<&_>, Plane<'_>)> = Vec::new();
    for guard in &file.guards {
        let access = guard.access.as_ref();
        let at = planes.iter().position(|(way, _)| *way == access).unwrap_or_else(|| {
            planes.push((access, Plane { guards: Vec::new(), user: None }));
            planes.len() - 1
        });
        if let Some((_, plane)) = planes.get_mut(at) {
            plane.guards.push(guard);
            plane.user = plane.user.take().or_else(|| guard.configured.requirements().user);
        }
    }
    planes.sort_by_key(|(access, _)| access.is_some());
    planes.into_iter().map(|(_, plane)| plane).collect()
}

/// The one that is printed for.
pub(super) fn chosen<'f>(mut planes: Vec<Plane<'f>>, only: &[Part]) -> Result<Plane<'f>, Problem> {
    let every = planes.iter().map(|plane| (plane.is_karmada(), plane.names())).collect::<Vec<_>>();
    let (karmada, cluster) = (only.contains(&Part::Karmada), only.contains(&Part::Cluster));
    if karmada || cluster {
        planes.retain(|plane| (karmada && plane.is_karmada()) || (cluster && !plane.is_karmada()));
    }
    if only.contains(&Part::Members) {
        planes.retain(Plane::has_members);
    }
    let told = || {
        let server = |is_karmada: &bool| if *is_karmada { "Karmada" } else { "the cluster of Durward" };
        let told = every.iter().map(|(is_karmada, names)| format!("{} ({names})", server(is_karmada)));
        told.collect::<Vec<_>>().join(" and ")
    };
    let count = planes.len();
    match planes.pop() {
        Some(plane) if count == 1 => Ok(plane),
        Some(_) => {
            let problem = Problem::new("the guards of this file are asked by two API servers").why(told());
            Err(problem.next(
                "print for each: --only cluster | kubectl apply -f -, and --only karmada | kubectl --kubeconfig karmada-admin.config apply -f -",
            ))
        }
        None => {
            let named: Vec<_> = only.iter().map(|part| format!("{part:?}").to_lowercase()).collect();
            let problem = Problem::new(format!("--only {}: there is nothing to print", named.join(",")));
            Err(problem.why(format!("the guards of this file are asked by {}", told())))
        }
    }
}
