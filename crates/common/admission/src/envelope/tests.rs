//! Decoding and its errors.

use super::*;

fn review(request: &str) -> String {
    format!(r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{request}}}"#)
}

fn request_of(body: &str) -> Request<'_> {
    decode(body.as_bytes(), &Fields::none()).unwrap().request
}

fn error_of(body: &str) -> String {
    decode(body.as_bytes(), &Fields::none()).unwrap_err().to_string()
}

#[test]
fn reads_a_whole_request() {
    let body = review(
        r#"{"uid":"u","kind":{"group":"autoscaling","version":"v1","kind":"Scale"},
        "resource":{"group":"apps","version":"v1","resource":"statefulsets"},"subResource":"scale",
        "requestKind":{"group":"autoscaling","version":"v1","kind":"Scale"},
        "requestResource":{"group":"apps","version":"v1","resource":"statefulsets"},"requestSubResource":"scale",
        "name":"db","namespace":"shop","operation":"UPDATE","dryRun":true,
        "userInfo":{"username":"ann","uid":"7","groups":["a","b\u0021"],"extra":{"x":["y"]}},
        "object":{"spec":1},"oldObject":{"spec":2},"options":{"kind":"UpdateOptions"}}"#,
    );
    let request = request_of(&body);
    assert_eq!(
        (request.uid.as_ref(), request.name.as_ref(), request.namespace.as_ref()),
        ("u", "db", "shop")
    );
    assert_eq!(request.kind.kind, "Scale");
    assert_eq!(request.resource.resource, "statefulsets");
    assert_eq!(request.subresource, "scale");
    assert_eq!(request.request_kind.as_ref().unwrap().kind, "Scale");
    assert_eq!(request.request_resource.as_ref().unwrap().group, "apps");
    assert_eq!(request.operation, Operation::Update);
    assert!(request.dry_run);
    assert_eq!(request.user.name, "ann");
    assert_eq!(request.user.groups(), ["a", "b!"]);
    assert!(request.user.is_in("b!") && !request.user.is_in("c"));
    assert_eq!(request.object.unwrap().raw().get(), r#"{"spec":1}"#);
    assert_eq!(request.old_object.unwrap().raw().get(), r#"{"spec":2}"#);
    assert_eq!(request.options.unwrap().get(), r#"{"kind":"UpdateOptions"}"#);
}

#[test]
fn takes_the_name_of_a_deletecollection_from_the_old_object() {
    let body = review(
        r#"{"uid":"u","resource":{"resource":"pods"},"operation":"DELETE","name":"","object":null,"oldObject":{"metadata":{"name":"web-0"}}}"#,
    );
    let request = request_of(&body);
    assert_eq!(request.name, "web-0");
    assert!(request.object.is_none());
}

#[test]
fn the_namespace_of_a_namespace_is_its_own_name() {
    let body = review(
        r#"{"uid":"u","operation":"DELETE","resource":{"group":"","version":"v1","resource":"namespaces"},
        "oldObject":{"metadata":{"name":"shop"}}}"#,
    );
    assert_eq!(request_of(&body).namespace, "shop");
}

#[test]
fn reads_a_dry_run_from_the_delete_options_of_an_eviction() {
    let eviction = |options: &str| {
        review(&format!(
            r#"{{"uid":"u","resource":{{"resource":"pods"}},"operation":"CREATE","subResource":"eviction","dryRun":false,"object":{{"deleteOptions":{options}}}}}"#
        ))
    };
    assert!(request_of(&eviction(r#"{"dryRun":["All"]}"#)).dry_run);
    assert!(!request_of(&eviction(r#"{"dryRun":[]}"#)).dry_run);
    assert!(!request_of(&eviction("{}")).dry_run);
    assert!(!request_of(&eviction("{}").replace("eviction", "binding")).dry_run);
}

#[test]
fn accepts_keys_in_any_order_and_ignores_unknown_ones() {
    let body = r#"{"request":{"later":[{}],"operation":"CONNECT","resource":{"resource":"pods"},"uid":"u"},"new":{"a":[1]},"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1"}"#;
    let review = decode(body.as_bytes(), &Fields::none()).unwrap();
    assert_eq!(review.api_version, ApiVersion::V1beta1);
    assert_eq!(review.request.operation, Operation::Connect);
}

#[test]
fn reports_line_and_column_of_invalid_json() {
    assert_eq!(
        error_of("{\n  \"kind\": AdmissionReview }"),
        "the body is not an AdmissionReview in JSON: a string is expected (line 2, column 11)"
    );
    assert!(error_of("").contains("an object is expected (line 1, column 1)"));
    assert!(error_of("{}{}").contains("unexpected text after the end"));
    let latin = decode(b"{\"kind\":\"\xe9\"}", &Fields::none()).unwrap_err();
    assert_eq!(latin.to_string(), "the body is not UTF-8 (line 1, column 10)");
}

#[test]
fn reports_what_is_missing() {
    assert!(error_of(r#"{"kind":"Pod","apiVersion":"v1"}"#).contains(r#"the body is a "Pod""#));
    assert!(error_of(r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v2"}"#).contains("v2"));
    assert!(
        error_of(r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}"#).contains("no request")
    );
    assert!(error_of(&review("null")).contains("no request"));
    assert!(error_of(&review("{}")).contains("no uid"));
    assert!(error_of(&review(r#"{"uid":"u"}"#)).contains("no operation"));
    assert!(error_of(&review(r#"{"uid":"u","operation":"PATCH"}"#)).contains("must be CREATE"));
    for resource in ["null", "{}", r#"{"resource":""}"#] {
        let body = review(&format!(r#"{{"uid":"u","operation":"CREATE","resource":{resource}}}"#));
        assert!(error_of(&body).contains("no resource"), "{resource}");
    }
    assert!(error_of(&review(r#"{"uid":7}"#)).contains("a string is expected"));
    assert!(
        error_of(&review(r#"{"uid":"u","operation":"CREATE","userInfo":{"groups":[1]}}"#))
            .contains("a string is expected")
    );
}

#[test]
fn rejects_names_and_uids_that_no_object_has_wherever_they_are() {
    let with = |field: &str, value: &str| {
        let value = |name: &str, valid: &str| if name == field { value.to_owned() } else { valid.to_owned() };
        let object = |key: &str| {
            format!(
                r#""{key}":{{"metadata":{{"name":"{}","namespace":"{}","uid":"{}"}}}}"#,
                value(&format!("{key} name"), "web-0"),
                value(&format!("{key} namespace"), "shop"),
                value(&format!("{key} uid"), "7"),
            )
        };
        let (uid, name, namespace) = (value("uid", "u"), value("name", "web-0"), value("namespace", "shop"));
        let (new, old) = (object("object"), object("oldObject"));
        review(&format!(
            r#"{{"uid":"{uid}","resource":{{"resource":"pods"}},"operation":"UPDATE","name":"{name}","namespace":"{namespace}",{new},{old}}}"#
        ))
    };
    assert_eq!(request_of(&with("", "")).name, "web-0");
    let long = "a".repeat(254);
    for (field, text) in [
        ("name", "name of the request"),
        ("namespace", "namespace of the request"),
        ("object name", "name of the object"),
        ("object namespace", "namespace of the object"),
        ("oldObject name", "name of the object"),
        ("oldObject namespace", "namespace of the object"),
    ] {
        let error = error_of(&with(field, &long));
        assert!(error.contains(&format!("the {text} is longer than 253 bytes")), "{field}: {error}");
        let error = error_of(&with(field, "a/../b"));
        assert!(error.contains(&format!("the {text} contains characters")), "{field}: {error}");
    }
    for (field, text) in [
        ("uid", "uid of the request"),
        ("object uid", "uid of the object"),
        ("oldObject uid", "uid of the object"),
    ] {
        let error = error_of(&with(field, &long));
        assert!(error.contains(&format!("the {text} is longer than 128 bytes")), "{field}: {error}");
    }
}

#[test]
fn accepts_every_name_that_a_role_can_have() {
    for name in ["a b", "a\\nb", "é", "a".repeat(300).as_str()] {
        let body = review(&format!(
            r#"{{"uid":"u","resource":{{"group":"rbac.authorization.k8s.io","resource":"roles"}},"operation":"CREATE",
            "name":"{name}","namespace":"shop","object":{{"metadata":{{"name":"{name}"}}}}}}"#
        ));
        assert_eq!(request_of(&body).name, name.replace("\\n", "\n"));
    }
}

#[test]
fn rejects_a_duplicate_key_of_the_request_with_its_position() {
    for (key, value) in [
        ("uid", r#""u""#),
        ("kind", "{}"),
        ("resource", "{}"),
        ("subResource", r#""""#),
        ("requestKind", "{}"),
        ("requestResource", "{}"),
        ("requestSubResource", r#""""#),
        ("name", r#""x""#),
        ("namespace", r#""x""#),
        ("operation", r#""CREATE""#),
        ("userInfo", "{}"),
        ("object", "{}"),
        ("oldObject", "{}"),
        ("options", "{}"),
        ("dryRun", "true"),
    ] {
        let expected = format!("{key} is a duplicate key in the request (line 1, column ");
        for (first, second) in [(value, value), (value, "null"), ("null", value)] {
            let error = error_of(&review(&format!(r#"{{"{key}":{first},"{key}":{second}}}"#)));
            assert!(error.contains(&expected), "{first} {second}: {error}");
        }
    }
}

#[test]
fn rejects_a_duplicate_key_in_objects_of_the_request() {
    for (parent, keys) in [
        ("kind", ["group", "version", "kind"].as_slice()),
        ("requestKind", &["group", "version", "kind"]),
        ("resource", &["group", "version", "resource"]),
        ("requestResource", &["group", "version", "resource"]),
        ("userInfo", &["username", "uid"]),
    ] {
        for key in keys {
            let error = error_of(&review(&format!(r#"{{"{parent}":{{"{key}":"a","{key}":"a"}}}}"#)));
            assert!(error.contains(&format!("{key} is a duplicate key")), "{parent}: {error}");
        }
    }
    for (key, value) in [("groups", "[]"), ("extra", "{}")] {
        let error = error_of(&review(&format!(r#"{{"userInfo":{{"{key}":{value},"{key}":{value}}}}}"#)));
        assert!(error.contains(&format!("{key} is a duplicate key in userInfo")), "{error}");
    }
}

#[test]
fn rejects_a_duplicate_key_of_the_envelope_with_its_position() {
    assert_eq!(
        error_of("{\"request\": {\"uid\": \"a\"},\n \"request\": {\"uid\": \"b\"}}"),
        "the body is not an AdmissionReview in JSON: request is a duplicate key (line 2, column 12)"
    );
    // A null value counts as a key.
    assert!(error_of(r#"{"request":null,"request":{}}"#).contains("request is a duplicate key"));
    assert!(error_of(r#"{"kind":"AdmissionReview","kind":"Pod"}"#).contains("kind is a duplicate key"));
    assert!(
        error_of(r#"{"apiVersion":"a","\u0061piVersion":"b"}"#).contains("apiVersion is a duplicate key")
    );
}

#[test]
fn ignores_the_name_in_an_object_with_a_duplicate_key() {
    let body = review(
        r#"{"uid":"u","operation":"CREATE","subResource":"eviction","resource":{"resource":"namespaces"},
        "object":{"metadata":{"name":"a"},"deleteOptions":{"dryRun":["All"]},"metadata":{"name":"b"}}}"#,
    );
    let request = request_of(&body);
    assert_eq!(request.object.unwrap().duplicate_key().as_deref(), Some("metadata"));
    assert_eq!((request.name.as_ref(), request.namespace.as_ref(), request.dry_run), ("", "", false));
    // The other object has no duplicate key, so it has the name.
    let body = body.replace(r#""uid":"u","#, r#""uid":"u","oldObject":{"metadata":{"name":"c"}},"#);
    let request = request_of(&body);
    assert_eq!((request.name.as_ref(), request.old_object.unwrap().duplicate_key()), ("c", None));
}

#[test]
fn accepts_the_same_key_in_different_objects() {
    let body = review(
        r#"{"uid":"u","kind":{"group":"a","kind":"K"},"requestKind":{"group":"b","kind":"L"},"operation":"CREATE","resource":{"resource":"ks"},
        "userInfo":{"uid":"7"},"object":{"kind":1,"uid":1},"oldObject":{"kind":1},"later":1,"later":2}"#,
    );
    let request = request_of(&body);
    assert_eq!((request.uid.as_ref(), request.user.uid.as_ref()), ("u", "7"));
    assert_eq!((request.kind.group.as_ref(), request.request_kind.unwrap().group.as_ref()), ("a", "b"));
}
