//! Checks by the member lists of the others whether a pod can be the member whose id it reports.
//!
//! Every answer of etcd contains ids. Without verified certificates, a pod with matching labels could therefore answer with the id
//! of a member that is down. The lists contain each member's name and the addresses that it advertised. With most charts and
//! operators one of them is the pod's. If no pod is found this way (a Service for each member, unrelated names), the lists prove
//! nothing and no member is rejected.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::super::facts::Facts;
use super::super::pod::Pod;
use super::responses::Responses;
use cluster::etcd::{Id, Member};

/// The entries of all lists by member.
pub(super) struct IdentityCheck<'f> {
    facts: &'f Facts,
    /// Several entries for each member, because a single list may be forged or outdated.
    entries: BTreeMap<Id, Vec<&'f Member>>,
    /// Whether the lists identify at least half of the answering pods.
    is_meaningful: bool,
}

impl<'f> IdentityCheck<'f> {
    pub(super) fn of(facts: &'f Facts, responses: Responses<'f>) -> Self {
        let mut entries: BTreeMap<Id, Vec<&Member>> = BTreeMap::new();
        for member in responses.lists().flat_map(|list| &list.members) {
            entries.entry(member.id).or_default().push(member);
        }
        let check = Self { facts, entries, is_meaningful: false };
        let listed = facts.pods.iter().filter_map(|pod| {
            let id = pod.answers()?.status.member;
            check.entries.contains_key(&id).then(|| check.identifies(&pod.pod, id))
        });
        let (identified, all) = listed.fold((0, 0), |(count, all), is| (count + usize::from(is), all + 1));
        Self { is_meaningful: identified > 0 && identified * 2 >= all, ..check }
    }

    /// Whether the lists show that the member runs in another pod.
    pub(super) fn contradicts(&self, pod: &Pod, member: Id) -> bool {
        if self.facts.is_verified || self.identifies(pod, member) {
            return false;
        }
        let mut others = self.facts.pods.iter().filter(|other| other.pod.uid != pod.uid);
        self.is_meaningful || others.any(|other| self.identifies(&other.pod, member))
    }

    /// Whether most lists have this pod's name or address for the member.
    fn identifies(&self, pod: &Pod, member: Id) -> bool {
        let entries = self.entries.get(&member).map_or(&[][..], Vec::as_slice);
        entries.iter().filter(|member| is_of(member, pod)).count() * 2 > entries.len()
    }
}

/// Whether the member has the pod's name or one of its addresses.
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

/// Returns the host of a URL: `etcd-0.etcd.db.svc` of `https://etcd-0.etcd.db.svc:2379/`.
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
    fn a_member_matches_a_pod_by_name_or_address() {
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
        // A pod without an address matches no URL.
        assert!(!is_of(&member("m1", ""), &pod("etcd-1", "")));
    }
}
