//! Why the world could not tell: the closed set of codes.
//!
//! A code is a metric's label and what a recording says of what could not be read; the sentence beside it is for people.

/// No connection: refused, no route, no such name, TLS does not come about.
pub const UNREACHABLE: &str = "unreachable";
/// No answer in the time there was.
pub const TIMEOUT: &str = "timeout";
/// 401, or no credentials could be had: the API server does not know who asks.
pub const CREDENTIALS: &str = "credentials";
/// 403: it knows, and RBAC does not permit it.
pub const FORBIDDEN: &str = "forbidden";
/// 429, 503 or 504: it is there and cannot answer now.
pub const BUSY: &str = "busy";
/// Any other refusal, and what cannot be asked at all.
pub const REFUSED: &str = "refused";
/// An answer that cannot be understood, or that answers something else than what was asked.
pub const GARBAGE: &str = "garbage";
/// The member has no address or no credentials in Karmada: nobody can ask it.
pub const NO_ENDPOINT: &str = "no-endpoint";
/// The cluster was in the list of the fleet and is not there any more.
pub const VANISHED: &str = "vanished";
/// The list of the fleet's clusters could not be read now, so nobody knows whom to ask.
pub const STALE_FLEET: &str = "stale-fleet";
/// The cluster serves no version of the resource at which its objects could be read.
pub const NOT_SERVED: &str = "not-served";
/// It answers, and Durward does not read all of it: an answer over its limit, or a List that comes to no last page in time, or
/// holds more objects than can be told apart. Not the cluster's silence, and not nonsense.
pub const TOO_LONG: &str = "too-long";
/// Durward itself had too many questions under way.
pub const CROWDED: &str = "crowded";
/// TLS to an etcd member does not come about: another authority, another name, expired, or it refuses the client's certificate.
pub const TLS: &str = "tls";
/// The member's address answers, and nothing listens on the port (connection refused): almost certainly no etcd runs there. A
/// firewall that rejects, and an address that is another's by now, answer the same.
pub const NOT_LISTENING: &str = "not-listening";
/// Something answers on the member's port, and it is not etcd.
pub const NOT_ETCD: &str = "not-etcd";
/// The member is etcd and has no JSON gateway there: switched off, or on another port.
pub const GATEWAY_OFF: &str = "gateway-off";
/// The pod has no address, or what stands there is none.
pub const NO_ADDRESS: &str = "no-address";
/// The version of etcd cannot do that.
pub const UNSUPPORTED: &str = "unsupported";
/// The member cannot have others agree: it knows no leader, or a quorum does not answer it.
pub const NO_QUORUM: &str = "no-quorum";
/// Which member a pod is, or which members there are, does not become clear from what was answered.
pub const UNCLEAR: &str = "unclear";
/// The departure of a member could not be noted where every replica of Durward sees it.
pub const NOT_RESERVED: &str = "not-reserved";
/// The recording does not hold it.
pub const NOT_RECORDED: &str = "not-recorded";
/// There is neither an API server nor a recording.
pub const NO_CLUSTER: &str = "no-world";

/// Every code.
pub const ALL: [&str; 24] = [
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
    CROWDED,
    TLS,
    NOT_LISTENING,
    NOT_ETCD,
    GATEWAY_OFF,
    NO_ADDRESS,
    UNSUPPORTED,
    NO_QUORUM,
    UNCLEAR,
    NOT_RESERVED,
    NOT_RECORDED,
    NO_CLUSTER,
];

/// Those that a recording may give for something that could not be read.
pub const RECORDED: [&str; 19] = [
    UNREACHABLE,
    TIMEOUT,
    CREDENTIALS,
    FORBIDDEN,
    BUSY,
    REFUSED,
    GARBAGE,
    NO_ENDPOINT,
    VANISHED,
    NOT_SERVED,
    TOO_LONG,
    CROWDED,
    TLS,
    NOT_LISTENING,
    NOT_ETCD,
    GATEWAY_OFF,
    NO_ADDRESS,
    UNSUPPORTED,
    NO_QUORUM,
];
