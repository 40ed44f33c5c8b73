package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
)

const head = `# Types of the built-in kinds of Kubernetes 1.35.4. crates/evaluator/policy/tools/types writes this file.
# A line with @ maps group, version and kind to a type. Every other line is a type with its fields: name=type, or name?=type
# if an empty value is left out, or name!=type if a zero value is.
`

// Types that decode and encode themselves, with their names in the table.
var own = map[reflect.Type]string{
	reflect.TypeFor[resource.Quantity]():    "quantity",
	reflect.TypeFor[meta.Time]():            "time",
	reflect.TypeFor[meta.MicroTime]():       "microtime",
	reflect.TypeFor[meta.Duration]():        "duration",
	reflect.TypeFor[meta.FieldsV1]():        "any",
	reflect.TypeFor[runtime.RawExtension](): "any",
	reflect.TypeFor[apiextensions.JSON]():   "any",
	reflect.TypeFor[intstr.IntOrString]():   "intorstring",
}

// Types that are one schema or something else.
var schemas = map[reflect.Type]string{
	reflect.TypeFor[apiextensions.JSONSchemaPropsOrBool]():        "schemaorbool",
	reflect.TypeFor[apiextensions.JSONSchemaPropsOrArray]():       "schemaorlist",
	reflect.TypeFor[apiextensions.JSONSchemaPropsOrStringArray](): "schemaorstrings",
}

// table collects types that kinds refer to.
type table struct {
	types map[string]string
}

// newTable returns the text of the table.
func newTable(kinds []schema.GroupVersionKind) ([]byte, error) {
	collected := table{types: map[string]string{}}
	var text strings.Builder
	text.WriteString(head)
	for _, kind := range kinds {
		object, err := scheme.Scheme.New(kind)
		if err != nil {
			return nil, err
		}
		name, err := collected.name(reflect.TypeOf(object).Elem())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
		fmt.Fprintf(&text, "@\t%s\t%s\t%s\t%s\n", kind.Group, kind.Version, kind.Kind, name)
	}
	names := make([]string, 0, len(collected.types))
	for name := range collected.types {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&text, "%s%s\n", name, collected.types[name])
	}
	return []byte(text.String()), nil
}

// name returns the name of a type in the table, and adds the type and all that it refers to.
func (t *table) name(of reflect.Type) (string, error) {
	if name, ok := own[of]; ok {
		return name, nil
	}
	if name, ok := schemas[of]; ok {
		return name, t.add(reflect.TypeFor[apiextensions.JSONSchemaProps]())
	}
	marshaler := reflect.TypeFor[json.Marshaler]()
	unmarshaler := reflect.TypeFor[json.Unmarshaler]()
	if of.Kind() != reflect.Pointer && (of.Implements(marshaler) || reflect.PointerTo(of).Implements(unmarshaler)) {
		return "", fmt.Errorf("%s encodes itself and is not known here", of)
	}
	switch of.Kind() {
	case reflect.String:
		return "string", nil
	case reflect.Bool:
		return "bool", nil
	case reflect.Int, reflect.Int64:
		return "int64", nil
	case reflect.Int32, reflect.Uint32, reflect.Uint16, reflect.Uint8:
		return of.Kind().String(), nil
	case reflect.Float64:
		return "float", nil
	case reflect.Pointer:
		return t.of("*", of.Elem())
	case reflect.Slice:
		if of.Elem().Kind() == reflect.Uint8 {
			return "bytes", nil
		}
		return t.of("[]", of.Elem())
	case reflect.Map:
		if of.Key().Kind() != reflect.String {
			return "", fmt.Errorf("%s has keys that are not strings", of)
		}
		return t.of("{}", of.Elem())
	case reflect.Struct:
		return typeName(of), t.add(of)
	}
	return "", fmt.Errorf("%s is not known here", of)
}

func (t *table) of(prefix string, element reflect.Type) (string, error) {
	name, err := t.name(element)
	return prefix + name, err
}

// add adds a struct with its fields, sorted by name.
func (t *table) add(of reflect.Type) error {
	name := typeName(of)
	if _, ok := t.types[name]; ok {
		return nil
	}
	t.types[name] = ""
	fields, err := t.fields(of)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	slices.Sort(fields)
	t.types[name] = strings.Join(append([]string{""}, fields...), " ")
	return nil
}

// fields returns the fields of a struct and of the structs that are inlined into it.
func (t *table) fields(of reflect.Type) ([]string, error) {
	var fields []string
	for i := range of.NumField() {
		field := of.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		if name == "" {
			if !field.Anonymous || field.Type.Kind() != reflect.Struct {
				return nil, fmt.Errorf("the field %s has no name", field.Name)
			}
			inlined, err := t.fields(field.Type)
			if err != nil {
				return nil, err
			}
			fields = append(fields, inlined...)
			continue
		}
		mark := ""
		for option := range strings.SplitSeq(options, ",") {
			switch {
			case option == "omitzero" && field.Type == reflect.TypeFor[meta.Time]():
				mark = "!"
			case option == "omitempty" && mark == "":
				mark = "?"
			case option != "" && option != "omitempty" && option != "inline":
				return nil, fmt.Errorf("the field %s has the option %s", name, option)
			}
		}
		element, err := t.name(field.Type)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		fields = append(fields, name+mark+"="+element)
	}
	return fields, nil
}

// typeName returns the name of a type with its group and version: apps/v1.DeploymentSpec.
func typeName(of reflect.Type) string {
	path := strings.Split(of.PkgPath(), "/")
	return strings.Join(path[len(path)-2:], "/") + "." + of.Name()
}
