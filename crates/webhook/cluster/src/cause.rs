//! The closed set of codes for why something is Unknown.
//!
//! A code is a metric label, and a snapshot contains it for data that could not be read. The text next to it is for users.

/// No connection: refused, no route, name not found, TLS handshake failed.
pub const UNREACHABLE: &str = "unreachable";
/// No answer in time.
pub const TIMEOUT: &str = "timeout";
/// 401, or no credentials were available: the API server does not accept Durward's identity.
pub const CREDENTIALS: &str = "credentials";
/// 403: RBAC does not permit the request.
pub const FORBIDDEN: &str = "forbidden";
/// 408, 429 or 5xx: the server answers, but cannot process the request now.
pub const BUSY: &str = "busy";
/// Any other error status, and requests that cannot be sent.
pub const REFUSED: &str = "refused";
/// An answer that does not parse, or that answers another request.
pub const GARBAGE: &str = "garbage";
/// Karmada has no address or no credentials of the member cluster.
pub const NO_ENDPOINT: &str = "no-endpoint";
/// The cluster was in the list of the fleet and no longer exists.
pub const VANISHED: &str = "vanished";
/// The list of the fleet's clusters could not be read.
pub const STALE_FLEET: &str = "stale-fleet";
/// The cluster does not serve the group and version of the resource.
pub const NOT_SERVED: &str = "not-served";
/// Durward does not read all of the answer: it is over its limit, a List has no last page in time, or it has too many objects.
pub const TOO_LONG: &str = "too-long";
/// Durward itself had too many concurrent requests, or no memory left for answers.
pub const OVERLOADED: &str = "overloaded";
/// The TLS handshake with an etcd member failed: wrong CA, wrong name, expired, or it rejects the client certificate.
pub const TLS: &str = "tls";
/// The member's address refuses connections on the port: almost certainly no etcd runs there. A firewall that rejects, and an
/// address that another pod has by now, look the same.
pub const NOT_LISTENING: &str = "not-listening";
/// Another program answers on the member's port.
pub const NOT_ETCD: &str = "not-etcd";
/// The pod has no address, or its address is invalid.
pub const NO_ADDRESS: &str = "no-address";
/// This version of etcd does not support the request.
pub const UNSUPPORTED: &str = "unsupported";
/// The member has no quorum: it has no leader, or a quorum does not answer it.
pub const NO_QUORUM: &str = "no-quorum";
/// The answers contradict each other about which member a pod is, or which members exist.
pub const UNCLEAR: &str = "unclear";
/// The API server does not have the object of the request, so Durward is connected to another cluster.
pub const WRONG_CLUSTER: &str = "wrong-cluster";
/// The selector of an entry matches pods of several etcd clusters.
pub const MIXED_CLUSTERS: &str = "mixed-clusters";
/// The reservation of a deletion could not be stored where every replica of Durward sees it.
pub const NOT_RESERVED: &str = "not-reserved";
/// A policy needs more time or memory than a review has, or a regular expression that is too large; or an in-use rule has no result.
pub const POLICY_LIMIT: &str = "policy-limit";
/// A policy is about another version of the object than the one that the API server sent.
pub const OTHER_VERSION: &str = "other-version";
/// The snapshot does not contain it.
pub const NOT_RECORDED: &str = "not-recorded";
/// Neither a cluster nor a snapshot is available.
pub const NO_CLUSTER: &str = "no-cluster";

/// Every code.
pub const ALL: [&str; 27] = [
    UNREACHABLE,
    TIMEOUT,
    CREDENTIALS,
    FORBIDDEN,
    BUSY,
    REFUSED,
    GARBAGE,
    NO_ENDPOINT,
    VANISHED,
    STALE_FLEET,
    NOT_SERVED,
    TOO_LONG,
    OVERLOADED,
    TLS,
    NOT_LISTENING,
    NOT_ETCD,
    NO_ADDRESS,
    UNSUPPORTED,
    NO_QUORUM,
    UNCLEAR,
    WRONG_CLUSTER,
    MIXED_CLUSTERS,
    NOT_RESERVED,
    POLICY_LIMIT,
    OTHER_VERSION,
    NOT_RECORDED,
    NO_CLUSTER,
];

/// Whether a snapshot can contain this code. The others result from a snapshot or from a decision.
pub fn is_recordable(code: &str) -> bool {
    !matches!(
        code,
        STALE_FLEET
            | UNCLEAR
            | WRONG_CLUSTER
            | MIXED_CLUSTERS
            | NOT_RESERVED
            | POLICY_LIMIT
            | OTHER_VERSION
            | NOT_RECORDED
            | NO_CLUSTER
    )
}

/// Every code that a snapshot can contain.
pub fn recordable() -> impl Iterator<Item = &'static str> {
    ALL.into_iter().filter(|code| is_recordable(code))
}

/// Whether a failure concerns the whole cluster, so that other requests to it fail for the same reason. [`REFUSED`] is not
/// among these: an unexpected status for one kind does not concern other kinds.
pub fn is_of_cluster(code: &str) -> bool {
    matches!(code, UNREACHABLE | TIMEOUT | CREDENTIALS | NO_ENDPOINT | VANISHED)
}
