package main

import (
	"fmt"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	extensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/crdserverscheme"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apiserver/pkg/registry/rest"
)

// servedVersion is the first version of a CRD, as getOrCreateServingInfoFor of the API server builds it.
type servedVersion struct {
	kind       schema.GroupVersionKind
	namespaced bool
	structural *structuralschema.Structural
	validator  validation.SchemaValidator
	strategy   interface {
		rest.RESTCreateStrategy
		rest.RESTUpdateStrategy
	}
}

func serve(crd *extensionsv1.CustomResourceDefinition) *servedVersion {
	version := crd.Spec.Versions[0]
	internal := &apiextensions.CustomResourceValidation{}
	fatal(extensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(version.Schema, internal, nil))
	structural, err := structuralschema.NewStructural(internal.OpenAPIV3Schema)
	fatal(err)
	structural = structural.DeepCopy()
	fatal(defaulting.PruneDefaults(structural))
	validator, _, err := validation.NewSchemaValidator(internal.OpenAPIV3Schema)
	fatal(err)
	served := &servedVersion{
		kind:       schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind},
		namespaced: crd.Spec.Scope == extensionsv1.NamespaceScoped,
		structural: structural,
		validator:  validator,
	}
	var status *apiextensions.CustomResourceSubresourceStatus
	var scale *apiextensions.CustomResourceSubresourceScale
	var statusValidator validation.SchemaValidator
	if subresources := version.Subresources; subresources != nil && subresources.Status != nil {
		status = &apiextensions.CustomResourceSubresourceStatus{}
		if properties, ok := internal.OpenAPIV3Schema.Properties["status"]; ok {
			statusValidator, _, err = validation.NewSchemaValidator(&properties)
			fatal(err)
		}
	}
	if subresources := version.Subresources; subresources != nil && subresources.Scale != nil {
		scale = &apiextensions.CustomResourceSubresourceScale{}
		fatal(extensionsv1.Convert_v1_CustomResourceSubresourceScale_To_apiextensions_CustomResourceSubresourceScale(subresources.Scale, scale, nil))
	}
	served.strategy = customresource.NewStrategy(
		crdserverscheme.NewUnstructuredObjectTyper(), served.namespaced, served.kind, validator, statusValidator, structural, status, scale, version.SelectableFields)
	return served
}

// decode reads an object of a request: JSON, metadata, pruning, nulls, embedded metadata, defaults. It returns warnings.
func (s *servedVersion) decode(text, fieldValidation string) (*unstructured.Unstructured, []string, error) {
	isStrict := fieldValidation != metav1.FieldValidationIgnore
	object, err := s.read(text, isStrict)
	strict, isStrictError := runtime.AsStrictDecodingError(err)
	if err != nil && !isStrictError {
		return nil, nil, err
	}
	var found []error
	if isStrictError {
		found = strict.Errors()
	}
	paths, err := s.coerce(object, isStrict, false)
	if err != nil {
		return nil, nil, err
	}
	for _, path := range paths {
		found = append(found, fmt.Errorf(`unknown field "%s"`, path))
	}
	if len(found) > 0 && fieldValidation == metav1.FieldValidationStrict {
		return nil, nil, runtime.NewStrictDecodingError(found)
	}
	warnings := []string{}
	for _, err := range found {
		warnings = append(warnings, err.Error())
	}
	if version := object.GroupVersionKind().GroupVersion(); version != s.kind.GroupVersion() {
		return nil, nil, fmt.Errorf("the API version in the data (%s) does not match the expected API version (%s)", version, s.kind.GroupVersion())
	}
	s.setDefaults(object)
	return object, warnings, nil
}

// decodeStored reads an object from the storage: malformed metadata is dropped.
func (s *servedVersion) decodeStored(text string) (*unstructured.Unstructured, error) {
	object, err := s.read(text, false)
	if err != nil {
		return nil, err
	}
	if _, err := s.coerce(object, false, true); err != nil {
		return nil, err
	}
	s.setDefaults(object)
	return object, nil
}

func (s *servedVersion) read(text string, isStrict bool) (*unstructured.Unstructured, error) {
	serializer := json.NewSerializerWithOptions(
		json.DefaultMetaFactory, nil, crdserverscheme.NewUnstructuredObjectTyper(), json.SerializerOptions{Strict: isStrict})
	object := &unstructured.Unstructured{}
	_, _, err := serializer.Decode([]byte(text), &s.kind, object)
	return object, err
}

// coerce does what the method apply of unstructuredSchemaCoercer does. It returns the paths of unknown fields.
func (s *servedVersion) coerce(object *unstructured.Unstructured, isStrict, isStored bool) ([]string, error) {
	kind, hasKind, err := unstructured.NestedString(object.Object, "kind")
	if err != nil {
		return nil, err
	}
	apiVersion, hasVersion, err := unstructured.NestedString(object.Object, "apiVersion")
	if err != nil {
		return nil, err
	}
	metadata, hasMetadata, unknown, err := objectmeta.GetObjectMetaWithOptions(object.Object, objectmeta.ObjectMetaOptions{
		DropMalformedFields: isStored, ReturnUnknownFieldPaths: isStrict,
	})
	if err != nil {
		return nil, err
	}
	version, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, err
	}
	if version.Group == s.kind.Group && kind == s.kind.Kind {
		known := s.structural
		if version.Version != s.kind.Version {
			known = nil
		}
		options := structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: isStrict}
		unknown = append(unknown, pruning.PruneWithOptions(object.Object, known, true, options)...)
		defaulting.PruneNonNullableNullsWithoutDefaults(object.Object, known)
		fieldErr, paths := objectmeta.CoerceWithOptions(nil, object.Object, known, false, objectmeta.CoerceOptions{
			DropInvalidFields: isStored, ReturnUnknownFieldPaths: isStrict,
		})
		if fieldErr != nil {
			return nil, fieldErr
		}
		unknown = append(unknown, paths...)
		if isStored && metadata != nil && metadata.Generation == 0 {
			metadata.Generation = 1
		}
	}
	if hasKind {
		object.SetKind(kind)
	}
	if hasVersion {
		object.SetAPIVersion(apiVersion)
	}
	if hasMetadata {
		return unknown, objectmeta.SetObjectMeta(object.Object, metadata)
	}
	return unknown, nil
}

func (s *servedVersion) setDefaults(object *unstructured.Unstructured) {
	if object.GroupVersionKind().GroupKind() == s.kind.GroupKind() {
		defaulting.Default(object.Object, s.structural)
	}
}

// namespace is that of the request: the object's own one, or the default one.
func (s *servedVersion) namespace(object *unstructured.Unstructured) string {
	switch {
	case !s.namespaced:
		return ""
	case object.GetNamespace() == "":
		return metav1.NamespaceDefault
	}
	return object.GetNamespace()
}

// fill sets what the API server sets before an object is validated, with values that don't change between runs.
func fill(object *unstructured.Unstructured) {
	const maxBase = 58
	if prefix := object.GetGenerateName(); prefix != "" && object.GetName() == "" {
		object.SetName(prefix[:min(len(prefix), maxBase)] + "12345")
	}
	object.SetUID("00000000-0000-0000-0000-000000000001")
	object.SetCreationTimestamp(metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)))
}
