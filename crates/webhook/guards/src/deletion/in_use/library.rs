//! The rules in the binary, one file each. They are off until `guards.deletion.inUse.library` names them.

/// The name and the text of each file of rules.
pub(in crate::deletion) const FILES: [(&str, &str); 12] = [
    ("secrets", include_str!("library/secrets.yaml")),
    ("secret-owners", include_str!("library/secret-owners.yaml")),
    ("configmaps", include_str!("library/configmaps.yaml")),
    ("serviceaccounts", include_str!("library/serviceaccounts.yaml")),
    ("storageclasses", include_str!("library/storageclasses.yaml")),
    ("priorityclasses", include_str!("library/priorityclasses.yaml")),
    ("ingressclasses", include_str!("library/ingressclasses.yaml")),
    ("runtimeclasses", include_str!("library/runtimeclasses.yaml")),
    ("gatewayclasses", include_str!("library/gatewayclasses.yaml")),
    ("gateways", include_str!("library/gateways.yaml")),
    ("clusterissuers", include_str!("library/clusterissuers.yaml")),
    ("issuers", include_str!("library/issuers.yaml")),
];
