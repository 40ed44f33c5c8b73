package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	extensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/common"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"
	kjson "sigs.k8s.io/json"
)

// crdCase is a CRD of apiextensions.k8s.io/v1 with objects of its first version. It is created, or updated if it has an old CRD.
type crdCase struct {
	CRD     json.RawMessage
	Old     json.RawMessage
	Objects []crdObject
}

// crdObject is created, or updated if it has an old object. The objects are texts, so that a key can occur twice.
type crdObject struct {
	Object          string
	Old             *string
	FieldValidation string
}

func (c *crdCase) answer() any {
	crd, err := readCRD(c.CRD)
	if err != nil {
		return map[string]any{"crd": []map[string]any{{"decode": err.Error()}}}
	}
	if len(c.Old) > 0 {
		old, err := readCRD(c.Old)
		if err != nil {
			return map[string]any{"crd": []map[string]any{{"decode": "old CRD: " + err.Error()}}}
		}
		return map[string]any{"crd": distinct(func() map[string]any { return updateCRD(crd.DeepCopy(), old.DeepCopy()) })}
	}
	admitted := distinct(func() map[string]any { return admitCRD(crd.DeepCopy()) })
	answer := map[string]any{"crd": admitted}
	if len(c.Objects) == 0 || admitted[0]["all"] == nil || len(admitted[0]["all"].([]string)) > 0 {
		return answer
	}
	served := serve(crd)
	objects := [][]map[string]any{}
	for _, object := range c.Objects {
		objects = append(objects, distinct(func() map[string]any { return served.process(&object) }))
	}
	answer["objects"] = objects
	return answer
}

func readCRD(text []byte) (*extensionsv1.CustomResourceDefinition, error) {
	crd := &extensionsv1.CustomResourceDefinition{}
	if _, err := kjson.UnmarshalStrict(text, crd); err != nil {
		return nil, err
	}
	extensionsv1.SetObjectDefaults_CustomResourceDefinition(crd)
	return crd, nil
}

// definitions is the strategy of the API server for CRDs.
var definitions = customresourcedefinition.NewStrategy(nil)

// updateCRD checks a CRD as the API server does in an update. The answer has all errors and the warnings.
func updateCRD(crd, old *extensionsv1.CustomResourceDefinition) map[string]any {
	newer, older := &apiextensions.CustomResourceDefinition{}, &apiextensions.CustomResourceDefinition{}
	for from, into := range map[*extensionsv1.CustomResourceDefinition]*apiextensions.CustomResourceDefinition{crd: newer, old: older} {
		if err := extensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(from, into, nil); err != nil {
			return map[string]any{"decode": err.Error()}
		}
		into.ResourceVersion, into.UID = "1", "00000000-0000-0000-0000-000000000001"
	}
	ctx := context.Background()
	definitions.PrepareForUpdate(ctx, newer, older)
	return map[string]any{
		"all":      texts(definitions.ValidateUpdate(ctx, newer, older)),
		"warnings": sorted(definitions.WarningsOnUpdate(ctx, newer, older)),
	}
}

// admitCRD checks a CRD as the API server does at creation. The errors of the steps for schemas are also listed alone:
//   - unsupported: keywords for which no structural schema can be built; the API server shows them only if there are no other errors
//   - structural: a schema that is not structural
//   - defaults: defaults that do not match their schema; they are checked if the schema is structural
func admitCRD(crd *extensionsv1.CustomResourceDefinition) map[string]any {
	internal := &apiextensions.CustomResourceDefinition{}
	if err := extensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, internal, nil); err != nil {
		return map[string]any{"decode": err.Error()}
	}
	definitions.PrepareForCreate(context.Background(), internal)
	var unsupported, structural, defaults field.ErrorList
	check := func(path *field.Path, versioned *apiextensions.CustomResourceValidation) {
		if versioned == nil || versioned.OpenAPIV3Schema == nil {
			return
		}
		path = path.Child("openAPIV3Schema")
		built, err := schema.NewStructural(versioned.OpenAPIV3Schema)
		if err != nil {
			unsupported = append(unsupported, field.Invalid(path, "", err.Error()))
			return
		}
		errs := schema.ValidateStructural(path, built)
		structural = append(structural, errs...)
		if len(errs) == 0 {
			errs, err := defaulting.ValidateDefaults(context.Background(), path, built, true, true)
			if err != nil {
				errs = append(errs, field.Invalid(path, "", err.Error()))
			}
			defaults = append(defaults, errs...)
		}
	}
	// The conversion moves the schema to spec.validation if all versions have the same one.
	spec := field.NewPath("spec")
	check(spec.Child("validation"), internal.Spec.Validation)
	for index, version := range internal.Spec.Versions {
		check(spec.Child("versions").Index(index).Child("schema"), version.Schema)
	}
	return map[string]any{
		"unsupported": texts(unsupported),
		"structural":  texts(structural),
		"defaults":    texts(defaults),
		"all":         texts(definitions.Validate(context.Background(), internal)),
		"warnings":    sorted(definitions.WarningsOnCreate(context.Background(), internal)),
	}
}

// texts returns each text once, in order.
func texts(errs field.ErrorList) []string {
	found := []string{}
	for _, err := range errs {
		found = append(found, err.Error())
	}
	return sorted(found)
}

func sorted(texts []string) []string {
	slices.Sort(texts)
	return slices.Compact(texts)
}

// process creates or updates an object. The answer has
//   - refused: an error that ends the request before the object is validated
//   - decoded: the object after pruning and defaulting, as the strategy receives it
//   - stored: the object as the strategy changes it
//   - schema, embedded, lists: the errors of single steps
//   - errors: all errors
//   - warnings
func (s *servedVersion) process(object *crdObject) map[string]any {
	decoded, warnings, err := s.decode(object.Object, object.FieldValidation)
	if err != nil {
		return map[string]any{"refused": err.Error()}
	}
	answer := map[string]any{"decoded": decoded.DeepCopy().Object}
	recorded := (*recordedWarnings)(&warnings)
	namespace := s.namespace(decoded)
	ctx := warning.WithWarningRecorder(apirequest.WithNamespace(context.Background(), namespace), recorded)
	var old *unstructured.Unstructured
	if object.Old == nil {
		fill(decoded)
		err = rest.BeforeCreate(s.strategy, ctx, decoded)
	} else {
		if old, err = s.decodeStored(*object.Old); err != nil {
			return map[string]any{"refused": "old object: " + err.Error()}
		}
		fill(old)
		old.SetResourceVersion("1")
		old.SetNamespace(namespace)
		if decoded.GetResourceVersion() == "" {
			decoded.SetResourceVersion(old.GetResourceVersion())
		}
		err = rest.BeforeUpdate(s.strategy, ctx, decoded, old)
	}
	errs := []string{}
	var status *apierrors.StatusError
	if errors.As(err, &status) && apierrors.IsInvalid(err) {
		for _, cause := range status.ErrStatus.Details.Causes {
			errs = append(errs, cause.Field+": "+cause.Message)
		}
	} else if err != nil {
		return map[string]any{"refused": err.Error()}
	}
	answer["errors"], answer["warnings"], answer["stored"] = sorted(errs), sorted(warnings), decoded.Object
	s.steps(decoded, old, answer)
	return answer
}

// steps adds the errors of single steps to an answer. The strategy runs a step even if an earlier one found errors.
func (s *servedVersion) steps(object, old *unstructured.Unstructured, answer map[string]any) {
	lists := listtype.ValidateListSetsAndMaps(nil, s.structural, object.Object)
	if old == nil {
		answer["schema"] = texts(validation.ValidateCustomResource(nil, object.Object, s.validator))
	} else {
		correlated := common.NewCorrelatedObject(object.Object, old.Object, &model.Structural{Structural: s.structural})
		answer["schema"] = texts(validation.ValidateCustomResourceUpdate(nil, object.Object, old.Object, s.validator, validation.WithRatcheting(correlated)))
		if len(listtype.ValidateListSetsAndMaps(nil, s.structural, old.Object)) > 0 {
			lists = nil
		}
	}
	answer["lists"] = texts(lists)
	answer["embedded"] = texts(validateEmbedded(object.Object, s.structural))
}

type recordedWarnings []string

func (w *recordedWarnings) AddWarning(_, text string) { *w = append(*w, text) }

func fatal(err error) {
	if err != nil {
		log.Fatalf("parity: %v", err)
	}
}
