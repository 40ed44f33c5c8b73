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
/// Durward itself had too many questions under way.
pub const CROWDED: &str = "crowded";
/// The recording does not hold it.
pub const NOT_RECORDED: &str = "not-recorded";
/// There is neither an API server nor a recording.
pub const NO_WORLD: &str = "no-world";

/// Every code.
pub const ALL: [&str; 14] = [
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
    CROWDED,
    NOT_RECORDED,
    NO_WORLD,
];

/// Those that a recording may give for something that could not be read.
pub const RECORDED: [&str; 10] =
    [UNREACHABLE, TIMEOUT, CREDENTIALS, FORBIDDEN, BUSY, REFUSED, GARBAGE, NO_ENDPOINT, VANISHED, NOT_SERVED];
