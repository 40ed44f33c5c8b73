//! `certs new` and `certs show`.

use std::os::unix::fs::PermissionsExt as _;

use crate::harness::{House, durward_in};

#[test]
fn keys_are_for_their_owner_alone_and_nothing_is_replaced_unasked() {
    let house = House::new();
    let mode = |name: &str| house.path().join(name).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("tls.key"), mode("ca.key"), mode("tls.crt")), (0o600, 0o600, 0o644));
    let before = std::fs::read(house.path().join("tls.key")).unwrap();
    let again = house.run(&["certs", "new", "--out", ".", "--name", "x.example"]);
    assert_eq!((again.code, again.out.as_str()), (2, ""));
    assert_eq!(again.err.matches("is there already").count(), 4, "{}", again.err);
    assert_eq!(std::fs::read(house.path().join("tls.key")).unwrap(), before);
    assert_eq!(house.run(&["certs", "new", "--out", ".", "--name", "x.example", "--force"]).code, 0);
    assert_ne!(std::fs::read(house.path().join("tls.key")).unwrap(), before);
    assert_eq!(mode("tls.key"), 0o600);
}

#[test]
fn what_is_made_fits_together_and_is_named_for_the_service() {
    let house = House::new();
    let shown = house.run(&["certs", "show", "."]);
    assert_eq!(shown.code, 0, "{}", shown.out);
    assert!(shown.out.contains("everything fits together"));
    let json = house.run(&["certs", "show", "tls.crt", "tls.key", "ca.crt", "-o", "json"]).json();
    let leaf = &json["certificates"][0];
    assert_eq!(leaf["names"][0], "durward.durward-system.svc");
    assert_eq!((&leaf["signed"], &leaf["key"]), (&true.into(), &"tls.key".into()));
    // 365 days at creation, and one less a second later.
    assert!(matches!(leaf["daysLeft"].as_u64(), Some(364 | 365)), "{leaf}");
    assert_eq!(json["problems"].as_array().unwrap().len(), 0);
}

#[test]
fn another_certificate_of_the_same_authority_is_signed_by_it() {
    let house = House::new();
    let renewed =
        house.run(&["certs", "new", "--out", "renewed", "--ca", ".", "--service", "durward.durward-system"]);
    assert_eq!(renewed.code, 0, "{}", renewed.err);
    assert!(!house.path().join("renewed/ca.key").exists(), "the authority's key is not spread");
    assert_eq!(house.run(&["certs", "show", "ca.crt", "renewed/tls.crt", "renewed/tls.key"]).code, 0);
}

#[test]
fn what_does_not_fit_is_exit_one_and_says_what() {
    let house = House::new();
    house.run(&["certs", "new", "--out", "other", "--name", "other.example"]);
    let wrong_key = house.run(&["certs", "show", "tls.crt", "other/tls.key"]);
    assert_eq!(wrong_key.code, 1);
    assert!(wrong_key.out.contains("wrong: other/tls.key: the key belongs to none"), "{}", wrong_key.out);
    let wrong_authority = house.run(&["certs", "show", "tls.crt", "other/ca.crt"]);
    assert_eq!(wrong_authority.code, 1);
    assert!(wrong_authority.out.contains("no authority given here signs it"), "{}", wrong_authority.out);
}

#[test]
fn a_ca_bundle_is_read_out_of_what_manifests_prints() {
    let house = House::new();
    let manifests = house.run(&["manifests", "--config", "durward.yaml"]).out;
    let shown = durward_in(house.path(), &["certs", "show", "-", "tls.crt"], &manifests);
    assert_eq!(shown.code, 0, "{}{}", shown.out, shown.err);
    assert!(shown.out.contains("caBundle of lxcfs-"), "{}", shown.out);
}

#[test]
fn bad_input_is_exit_two_with_the_way_out() {
    let house = House::new();
    house.write("empty.pem", "");
    house.write("broken.pem", "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n");
    house.write("garbage.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    house.write(
        "encrypted.key",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    );
    for (arguments, told) in [
        (&["certs", "show", "nothing.crt"][..], "nothing.crt cannot be read"),
        (&["certs", "show", "empty.pem"], "holds no document"),
        (&["certs", "show", "broken.pem"], "cannot be read as PEM"),
        (&["certs", "show", "garbage.crt"], "cannot be read"),
        (&["certs", "show", "encrypted.key"], "openssl pkey"),
        (&["certs", "show", "world"], "looked for: *.crt"),
        (&["certs", "show", "durward.yaml"], "holds no certificate"),
        (&["certs", "new", "--out", "x"], "is missing"),
        (&["certs", "new", "--out", "x", "--service", "durward"], "is not NAME.NAMESPACE"),
        (&["certs", "new", "--out", "x", "--name", "10.0.0.1"], "give addresses by --address"),
        (&["certs", "new", "--out", "x", "--name", "a b"], "is no DNS name"),
        (&["certs", "new", "--out", "x", "--address", "host"], "--address"),
        (&["certs", "new", "--out", "x", "--name", "a.b", "--days", "0"], "--days"),
        (
            &["certs", "new", "--out", "x", "--name", "a.b", "--ca", "world"],
            "--ca: world/ca.crt cannot be read",
        ),
        (&["certs", "new", "--out", "durward.yaml", "--name", "a.b"], "durward.yaml cannot be written"),
    ] {
        let run = house.run(arguments);
        assert_eq!(run.code, 2, "{arguments:?} {}", run.err);
        assert!(run.err.contains(told), "{arguments:?}: {}", run.err);
    }
    assert!(!house.path().join("x").exists(), "nothing is written when something is wrong");
}
