//! `config defaults`: prints all keys with their defaults. Guards are commented out, and keys that every guard has are printed
//! once.

use config::{Key, Shape};

use crate::file;

/// Values for `server.tls.files`, which has no default. With them the printed file is complete but for the guards.
const CERTIFICATE: [(&str, &str); 3] =
    [("cert", "tls/tls.crt"), ("key", "tls/tls.key"), ("ca", "tls/ca.crt")];

const HEAD: &str = "\
# All keys of Durward's configuration with their defaults. Keys without a default are commented out.
# The certificate is created by: durward certs new --service durward.durward-system --out tls
# A file to start with is printed by: durward config init --guard NAME
";

/// Returns the file.
pub(super) fn text() -> String {
    let mut keys = file::keys();
    for (name, path) in CERTIFICATE {
        if let Some(key) = find(&mut keys, &["server", "tls", "files", name]) {
            key.default = Some(path.to_owned());
        }
    }
    // A certificate is from files or self-managed, so the other one is a comment.
    if let Some(key) = find(&mut keys, &["server", "tls", "selfManaged"]) {
        key.shape = Shape::Text("{}");
    }
    let is_guards = |key: &Key| key.name == "guards";
    let others: Vec<Key> = keys.iter().filter(|key| !is_guards(key)).cloned().collect();
    let guards = keys.iter().find(|key| is_guards(key)).map(sections).unwrap_or_default();
    let mut out = format!("{HEAD}{}# A guard without a section is off.\nguards:\n", Key::defaults(&others));
    let common = common(&guards);
    out.push_str("  # Every guard has these keys:\n");
    comment(&Key::defaults(&common), "    ", &mut out);
    for guard in &guards {
        let has_own = |key: &&Key| !common.iter().any(|base| base.name == key.name);
        let mut own: Vec<Key> = sections(guard).iter().filter(has_own).cloned().collect();
        // Common keys are repeated only if their default differs.
        own.extend(
            sections(guard)
                .iter()
                .filter_map(|key| differing(key, common.iter().find(|base| base.name == key.name)?)),
        );
        let section = [Key { shape: Shape::Section(own), ..guard.clone() }];
        out.push_str("  #\n");
        comment(&Key::defaults(&section), "  ", &mut out);
    }
    out
}

/// Adds a YAML text as a comment. It is right again without the `# `.
fn comment(text: &str, indent: &str, out: &mut String) {
    for line in text.lines() {
        out.push_str("  # ");
        out.push_str(indent.get(2..).unwrap_or_default());
        out.push_str(line);
        out.push('\n');
    }
}

pub(crate) fn sections(key: &Key) -> Vec<Key> {
    match &key.shape {
        Shape::Section(keys) => keys.clone(),
        _ => Vec::new(),
    }
}

/// Returns the keys that all guards have, with the defaults of the first one.
pub(crate) fn common(guards: &[Key]) -> Vec<Key> {
    let Some((first, others)) = guards.split_first() else { return Vec::new() };
    let has =
        |guard: &Key, key: &Key| sections(guard).iter().any(|own| own.name == key.name && own.doc == key.doc);
    sections(first).into_iter().filter(|key| others.iter().all(|guard| has(guard, key))).collect()
}

/// Returns the part of a key whose default differs from `base`.
pub(crate) fn differing(key: &Key, base: &Key) -> Option<Key> {
    let (Shape::Section(own), Shape::Section(others)) = (&key.shape, &base.shape) else {
        return (key.default != base.default).then(|| key.clone());
    };
    let inner =
        own.iter().filter_map(|key| differing(key, others.iter().find(|base| base.name == key.name)?));
    let inner: Vec<Key> = inner.collect();
    (!inner.is_empty()).then(|| Key { shape: Shape::Section(inner), ..key.clone() })
}

/// Returns the key at a path.
fn find<'k>(keys: &'k mut [Key], path: &[&str]) -> Option<&'k mut Key> {
    let (first, rest) = path.split_first()?;
    let key = keys.iter_mut().find(|key| key.name == *first)?;
    if rest.is_empty() {
        return Some(key);
    }
    match &mut key.shape {
        Shape::Section(inner) => find(inner, rest),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the keys that have values, not the sections around them.
    fn values(keys: &[Key]) -> usize {
        fn inner(shape: &Shape) -> usize {
            match shape {
                Shape::Section(keys) => values(keys),
                Shape::List(entry) => inner(entry),
                _ => 1,
            }
        }
        keys.iter().map(|key| inner(&key.shape)).sum()
    }

    #[test]
    fn at_most_81_keys_are_printed() {
        let mut keys = file::keys();
        find(&mut keys, &["server", "tls", "selfManaged"]).unwrap().shape = Shape::Text("{}");
        // `apiVersion` and `kind` have one value each.
        let others: Vec<Key> = keys.iter().filter(|key| key.name != "guards").cloned().collect();
        let guards = keys.iter().find(|key| key.name == "guards").map(sections).unwrap_or_default();
        let common = common(&guards);
        let mut count = values(&others) - 2 + values(&common);
        for guard in &guards {
            let own: Vec<Key> = sections(guard)
                .into_iter()
                .filter(|key| !common.iter().any(|base| base.name == key.name))
                .collect();
            count += values(&own);
        }
        assert!(count <= 81, "{count} keys");
        assert!(count > 60, "{count} keys: the count is wrong");
    }
}
