//! Containers for pods on the node:
//!
//! ```no_run
//! # use e2e::{namespace::Namespace, node};
//! # use serde_json::json;
//! # fn case(shop: &Namespace<'_>) -> anyhow::Result<()> {
//! let limits = json!({"resources": {"limits": {"memory": "256Mi"}}});
//! shop.pod("web").container_like("app", node::idle(limits)).is_admitted()?;
//! # Ok(()) }
//! ```

use serde_json::{Value, json};

use crate::image::Image;

/// Returns a container that waits and ends at once on SIGTERM, with the fields of `rest`.
pub fn idle(rest: Value) -> Value {
    shell("trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done", rest)
}

/// Returns a container of [`Image::Busybox`] that runs this shell script, with the fields of `rest`.
pub fn shell(script: &str, rest: Value) -> Value {
    let mut container = json!({
        "image": Image::Busybox.name(), "imagePullPolicy": "Never", "command": ["/bin/sh", "-c", script],
    });
    if let (Value::Object(container), Value::Object(rest)) = (&mut container, rest) {
        container.extend(rest);
    }
    container
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_the_fields_of_the_case() {
        let container = idle(json!({"tty": true, "image": "durward.test/other:1"}));
        assert_eq!(container["tty"], true);
        assert_eq!(container["image"], "durward.test/other:1");
        assert_eq!(container["imagePullPolicy"], "Never");
        assert_eq!(container["command"][0], "/bin/sh");
    }
}
