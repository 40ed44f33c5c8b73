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
    of(Image::Busybox, json!({"command": ["/bin/sh", "-c", script]}), rest)
}

/// Returns a container of another image with its own command, with the fields of `rest`.
pub fn of_image(image: Image, rest: Value) -> Value {
    of(image, json!({}), rest)
}

fn of(image: Image, more: Value, rest: Value) -> Value {
    let mut container = json!({"image": image.name(), "imagePullPolicy": "Never"});
    for fields in [more, rest] {
        if let (Value::Object(container), Value::Object(fields)) = (&mut container, fields) {
            container.extend(fields);
        }
    }
    container
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_case_says_of_a_container_is_added_and_wins() {
        let container = idle(json!({"tty": true, "image": "durward.test/other:1"}));
        assert_eq!(container["tty"], true);
        assert_eq!(container["image"], "durward.test/other:1");
        assert_eq!(container["imagePullPolicy"], "Never");
        assert_eq!(container["command"][0], "/bin/sh");
    }
}
