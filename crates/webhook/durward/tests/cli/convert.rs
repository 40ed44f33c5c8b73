//! `convert crd`: CRDs of `v1beta1` as `v1`.

use crate::harness::{Run, TestDir, durward, durward_in, root};

const CRD: &str = "examples/kubernetesclusters/crd-v1beta1.yaml";
const SAMPLE: &str = "examples/kubernetesclusters/sample.yaml";

/// The result without the schema.
const HEAD: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: kubernetesclusters.ecs.yun.com
spec:
  group: ecs.yun.com
  names:
    kind: KubernetesCluster
    listKind: KubernetesClusterList
    plural: kubernetesclusters
    shortNames:
    - ecs
    singular: kubernetescluster
  scope: Namespaced
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
";

const KEPT: &str = "        properties:
          spec:
            properties:
              clusterType:
                type: string
              scaleDown:
                minimum: 0
                type: integer
              scaleUp:
                type: integer
            required:
            - clusterType
            - masterList
            - nodeList
            type: object
            x-kubernetes-preserve-unknown-fields: true
        type: object
        x-kubernetes-preserve-unknown-fields: true
";

const DECLARED: &str = "        properties:
          spec:
            properties:
              clusterType:
                type: string
              masterList:
                items:
                  properties:
                    ip:
                      type: string
                  type: object
                type: array
              nodeList:
                items:
                  properties:
                    ip:
                      type: string
                  type: object
                type: array
              privateSSHKey:
                type: string
              scaleDown:
                minimum: 0
                type: integer
              scaleUp:
                type: integer
              serviceCIDR:
                type: string
            required:
            - clusterType
            - masterList
            - nodeList
            type: object
        type: object
";

const TAIL: &str = "    served: true
    storage: true
";

fn convert(input: &str) -> Run {
    durward_in(&root(), &["convert", "crd"], input)
}

#[test]
fn keeps_unknown_fields() {
    let run = durward(&["convert", "crd", CRD]);
    assert_eq!((run.code, run.out), (0, [HEAD, KEPT, TAIL].concat()));
    assert_eq!(
        run.err,
        "note: KubernetesCluster: required but not declared, so the result keeps them as unknown fields: spec.masterList, spec.nodeList\n"
    );
    assert_eq!(durward(&["convert", "crd", CRD, "--quiet"]).err, "");
}

#[test]
fn declares_the_fields_of_samples() {
    let run = durward(&["convert", "crd", CRD, "--declare", SAMPLE]);
    assert_eq!((run.code, run.out, run.err.as_str()), (0, [HEAD, DECLARED, TAIL].concat(), ""));
    let bad = durward(&["convert", "crd", CRD, "--declare", "examples/lxcfs/pods/web.yaml"]);
    assert!(bad.err.contains("note: KubernetesCluster: no sample has this kind"), "{}", bad.err);
}

#[test]
fn the_result_is_a_crd_for_check() {
    let directory = TestDir::new();
    std::fs::write(directory.path().join("crd.yaml"), durward(&["convert", "crd", CRD]).out).unwrap();
    let sample = root().join(SAMPLE);
    let run =
        durward_in(directory.path(), &["check", &sample.display().to_string(), "--with", "crd.yaml"], "");
    assert_eq!(run.code, 0, "{}{}", run.out, run.err);
}

#[test]
fn names_each_loss_with_its_place_and_prints_no_crd() {
    let crd = std::fs::read_to_string(root().join(CRD)).unwrap();
    let crd = crd.replace(
        "scaleUp:\n              type: integer",
        "scaleUp:\n              anyOf:\n              - type: number\n              - minLength: 1",
    );
    let run = convert(&crd);
    assert_eq!((run.code, run.out.as_str()), (1, ""));
    assert!(
        run.err.contains("standard input:33:17: spec.validation.openAPIV3Schema.properties[spec].properties[scaleUp].anyOf[0].type: Forbidden: must be empty to be structural: v1 can't express this schema"),
        "{}",
        run.err
    );
}

#[test]
fn refuses_input_without_a_crd_of_v1beta1() {
    let run = durward(&["convert", "crd", "examples/kubernetesclusters/crd.yaml"]);
    assert_eq!((run.code, run.out.as_str()), (2, ""));
    assert!(
        run.err
            .contains("examples/kubernetesclusters/crd.yaml contains no CRD of apiextensions.k8s.io/v1beta1"),
        "{}",
        run.err
    );
    let run = convert("a: [1\n");
    assert_eq!(run.code, 2);
    assert!(run.err.contains("standard input:"), "{}", run.err);
    let run = convert("apiVersion: apiextensions.k8s.io/v1beta1\nkind: CustomResourceDefinition\nspec: 1\n");
    assert_eq!(run.code, 2);
    assert!(run.err.contains("standard input:3:1: spec: Invalid type: expected an object"), "{}", run.err);
}

#[test]
fn converts_all_crds_of_a_file() {
    let crd = std::fs::read_to_string(root().join(CRD)).unwrap();
    let other = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n";
    let run = convert(&format!("{crd}---\n{other}---\n{crd}"));
    assert_eq!(run.code, 0, "{}", run.err);
    let converted = [HEAD, KEPT, TAIL].concat();
    assert_eq!(run.out, format!("{converted}---\n{converted}"));
    assert!(run.err.contains("note: not printed: 1 other document of standard input"), "{}", run.err);
}
