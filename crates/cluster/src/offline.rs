//! The world of a Durward that was given neither an API server nor a recording, as `durward review` without `--world`.

use std::future::ready;
use std::time::Instant;

use admission::{BoxFuture, Cause};

use super::fleet::{Fleet, Members};
use super::{Address, Answer, Reader, cause};

/// Sees nothing, and says how it could see.
#[derive(Debug, Clone, Copy, Default)]
pub struct Offline;

impl Reader for Offline {
    fn get<'a>(&'a self, address: Address<'a>, _deadline: Instant) -> BoxFuture<'a, Answer> {
        Box::pin(ready(Err(nowhere(&address.to_string()))))
    }

    fn members<'a>(&'a self, _fleet: &'a Fleet, _deadline: Instant) -> BoxFuture<'a, Members> {
        // Whoever asks says what could not be read.
        Box::pin(ready(Err(Cause::new(cause::NO_WORLD, NONE))))
    }
}

/// What would help. Not `--kubeconfig`: commands that have it are never blind.
const NONE: &str = "no world was given (--world DIR)";

/// The answer to everything where there is nothing to look at.
pub(super) fn nowhere(what: &str) -> Cause {
    Cause::new(cause::NO_WORLD, format!("{what} could not be looked up: {NONE}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Resource;

    #[tokio::test]
    async fn knows_nothing_and_says_what_to_give() {
        let address = Address { resource: &Resource::NAMESPACES, namespace: "", name: "shop" };
        let cause = Offline.get(address, Instant::now()).await.unwrap_err();
        assert_eq!(cause.code, "no-world");
        assert_eq!(
            cause.text,
            "namespaces \"shop\" could not be looked up: no world was given (--world DIR)"
        );
        let members = Offline.members(&Fleet::Karmada, Instant::now()).await.unwrap_err();
        assert_eq!((members.code, members.text.as_str()), ("no-world", "no world was given (--world DIR)"));
    }
}
