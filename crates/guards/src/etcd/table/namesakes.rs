//! Which pod a member runs in, by the lists of the others: whether a pod that says that it is a member may be that one.
//!
//! Ids are in every answer of etcd, so that where nobody's certificate is verified a pod with the right labels may answer with the
//! id of a member that is down. The list of members has its name, and the addresses that it gave itself when it started; with most
//! charts and operators one of them is the pod's. Where none is (a Service for each member, names of somebody's own), lists tell
//! nothing, and nobody is refused for it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::super::facts::{Facts, View};
use super::super::pod::Pod;
use super::list::Voices;
use cluster::etcd::{Id, Member};

/// What the lists say of each member.
pub(super) struct Namesakes<'f> {
    facts: &'f Facts,
    /// What each list has for it: one list may have been made up, and one may be old.
    entries: BTreeMap<Id, Vec<&'f Member>>,
    /// Whether they tell the pods of at least half of those who answer.
    is_told: bool,
}

impl<'f> Namesakes<'f> {
    pub(super) fn of(facts: &'f Facts, voices: Voices<'f>) -> Self {
        let mut entries: BTreeMap<Id, Vec<&Member>> = BTreeMap::new();
        for member in voices.lists().flat_map(|list| &list.members) {
            entries.entry(member.id).or_default().push(member);
        }
        let all = Self { facts, entries, is_told: false };
        let answering = facts.seen.iter().filter_map(|seen| match &seen.view {
            View::Full(answers) if all.entries.contains_key(&answers.status.member) => {
                Some(all.tells(&seen.pod, answers.status.member))
            }
            _ => None,
        });
        let (told, many) = answering.fold((0, 0), |(told, many), is| (told + usize::from(is), many + 1));
        Self { is_told: told > 0 && told * 2 >= many, ..all }
    }

    /// Whether this pod is not the one that the member runs in.
    pub(super) fn is_another(&self, pod: &Pod, member: Id) -> bool {
        if self.facts.is_verified || self.tells(pod, member) {
            return false;
        }
        let mut others = self.facts.seen.iter().filter(|seen| seen.pod.uid != pod.uid);
        self.is_told || others.any(|other| self.tells(&other.pod, member))
    }

    /// Whether most lists have something of this pod for the member.
    fn tells(&self, pod: &Pod, member: Id) -> bool {
        let entries = self.entries.get(&member).map_or(&[][..], Vec::as_slice);
        entries.iter().filter(|member| is_of(member, pod)).count() * 2 > entries.len()
    }
}

/// Whether the member goes by the pod's name or is reached at it.
fn is_of(member: &Member, pod: &Pod) -> bool {
    let address: Option<IpAddr> = pod.address.parse().ok();
    let is_host = |host: &str| {
        let rest = host.strip_prefix(pod.name.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            || (address.is_some() && host.parse().ok() == address)
    };
    member.name == pod.name
        || member.peer_urls.iter().chain(&member.client_urls).any(|url| is_host(host(url)))
}

/// The host of a URL, as `etcd-0.etcd.db.svc` of `https://etcd-0.etcd.db.svc:2379/`.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => authority.split_once(':').map_or(authority, |(host, _)| host),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, address: &str) -> Pod {
        Pod { name: name.into(), address: address.into(), ..Pod::default() }
    }

    fn member(name: &str, url: &str) -> Member {
        Member { name: name.into(), client_urls: vec![url.into()], ..Member::default() }
    }

    #[test]
    fn a_member_is_its_pods_by_its_name_or_by_where_it_is_reached() {
        let etcd = pod("etcd-1", "10.0.0.1");
        for (name, url) in [
            ("etcd-1", "http://anything"),
            ("m1", "http://etcd-1:2379"),
            ("m1", "https://etcd-1.etcd.db.svc:2379/"),
            ("m1", "http://10.0.0.1:2379"),
            ("m1", "etcd-1.etcd"),
        ] {
            assert!(is_of(&member(name, url), &etcd), "{name} {url}");
            let by_peers = Member { peer_urls: vec![url.into()], ..member(name, "http://x") };
            assert!(is_of(&by_peers, &etcd), "{name} {url}");
        }
        for (name, url) in [
            ("etcd-2", "http://etcd-2:2379"),
            ("etcd-10", "http://etcd-10.etcd:2379"),
            ("m1", "http://10.0.0.11:2379"),
            ("m1", "http://x/etcd-1"),
            ("", ""),
        ] {
            assert!(!is_of(&member(name, url), &etcd), "{name} {url}");
        }
        assert!(is_of(&member("m1", "http://[fd00:0::1]:2379"), &pod("etcd-1", "fd00::1")));
        // A pod without an address is reached nowhere.
        assert!(!is_of(&member("m1", ""), &pod("etcd-1", "")));
    }
}
