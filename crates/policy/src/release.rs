//! Kubernetes minors: the environment that expressions are compiled with and the server that evaluates them.

/// Oldest minor whose answers are known.
pub const OLDEST: u8 = 30;
/// Newest minor whose answers are known.
pub const NEWEST: u8 = 37;

/// An API server of one minor and the environment of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Release {
    /// Minor of the API server.
    pub server: u8,
    /// Minor of the environment: the server's minor minus one for new expressions, the server's minor for stored ones.
    pub environment: u8,
}

impl Release {
    /// The release that admits new policies on an API server of minor `server`.
    pub fn for_new(server: u8) -> Self {
        Self { server, environment: server.saturating_sub(1) }
    }

    /// The release that evaluates stored policies on an API server of minor `server`.
    pub fn for_stored(server: u8) -> Self {
        Self { server, environment: server }
    }
}
