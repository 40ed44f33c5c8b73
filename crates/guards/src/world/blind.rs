//! The world of a Durward that was given neither an API server nor a recording, as `durward review` without `--world`.

use std::future::ready;
use std::time::Instant;

use admission::{BoxFuture, Cause};

use super::{Address, Answer, World, cause};

/// Sees nothing, and says how it could see.
#[derive(Debug, Clone, Copy, Default)]
pub struct Blind;

impl World for Blind {
    fn get<'a>(&'a self, address: Address<'a>, _deadline: Instant) -> BoxFuture<'a, Answer> {
        Box::pin(ready(Err(nowhere(&address.to_string()))))
    }
}

/// The answer to everything where there is nothing to look at.
pub(super) fn nowhere(what: &str) -> Cause {
    let text = format!(
        "{what} could not be looked up: there is no cluster to ask; give a recording (--world DIR) or an API server (--kubeconfig FILE)"
    );
    Cause::new(cause::NO_WORLD, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::Resource;

    #[tokio::test]
    async fn knows_nothing_and_says_what_to_give() {
        let address = Address { resource: &Resource::NAMESPACES, namespace: "", name: "shop" };
        let cause = Blind.get(address, Instant::now()).await.unwrap_err();
        assert_eq!(cause.code, "no-world");
        assert!(cause.text.starts_with("namespaces \"shop\" could not be looked up"), "{}", cause.text);
        assert!(cause.text.contains("--world DIR") && cause.text.contains("--kubeconfig FILE"));
    }
}
