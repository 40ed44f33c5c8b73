package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	strict "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

const (
	seed = 12
	// Generated objects of each kind.
	perKind = 2
	// Levels at which fields of generated objects are mostly present, and at which none are.
	wideLevels, maxLevel = 2, 7
)

// A result is one line of the file: an object, and the round trip's result or error.
type result struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Object     any      `json:"object"`
	Result     any      `json:"result,omitempty"`
	Unknown    []string `json:"unknown,omitempty"`
	Error      string   `json:"error,omitempty"`
}

// newCases returns the cases: the manifests of a file, and generated objects of each kind.
func newCases(kinds []schema.GroupVersionKind) ([]byte, error) {
	text, err := os.ReadFile(samples)
	if err != nil {
		return nil, err
	}
	var objects []map[string]any
	for _, document := range strings.Split(string(text), "\n---\n") {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			return nil, fmt.Errorf("%s: %w", samples, err)
		}
		objects = append(objects, object)
	}
	generator := generator{rand.New(rand.NewPCG(seed, seed))}
	for _, kind := range kinds {
		for range perKind {
			object, err := scheme.Scheme.New(kind)
			if err != nil {
				return nil, err
			}
			fields := generator.fields(reflect.TypeOf(object).Elem(), 0)
			fields["apiVersion"], fields["kind"] = kind.GroupVersion().String(), kind.Kind
			objects = append(objects, fields)
		}
	}
	var lines bytes.Buffer
	encoder := json.NewEncoder(&lines)
	encoder.SetEscapeHTML(false)
	for _, object := range objects {
		line, err := roundTrip(object)
		if err != nil {
			return nil, err
		}
		if err := encoder.Encode(line); err != nil {
			return nil, err
		}
	}
	return lines.Bytes(), nil
}

// roundTrip decodes an object as the API server does and converts it to the form that policies see.
func roundTrip(fields map[string]any) (*result, error) {
	apiVersion, _ := fields["apiVersion"].(string)
	kind, _ := fields["kind"].(string)
	line := &result{APIVersion: apiVersion, Kind: kind, Object: fields}
	object, err := scheme.Scheme.New(schema.FromAPIVersionAndKind(apiVersion, kind))
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	problems, err := strict.UnmarshalStrict(text, object)
	if err != nil {
		line.Error = err.Error()
		return line, nil
	}
	for _, problem := range problems {
		line.Unknown = append(line.Unknown, problem.Error())
	}
	converted, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	line.Result = converted
	return line, nil
}

// A generator makes objects that are legal JSON for a type, with empty values, nulls and odd forms, and sometimes wrong.
type generator struct {
	*rand.Rand
}

func (g generator) chance(percent int) bool {
	return g.IntN(100) < percent
}

func pick[T any](g generator, choices ...T) T {
	return choices[g.IntN(len(choices))]
}

// fields generates the fields of a struct.
func (g generator) fields(of reflect.Type, level int) map[string]any {
	fields := map[string]any{}
	present := 60
	if level > wideLevels {
		present = 60 / max(of.NumField(), 1)
	}
	for i := range of.NumField() {
		field := of.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" {
			for name, value := range g.fields(field.Type, level) {
				fields[name] = value
			}
			continue
		}
		// Managed fields and status are alike in all kinds, and long.
		if name == "managedFields" || (name == "status" && g.chance(70)) || !g.chance(present) {
			continue
		}
		if level > maxLevel && field.Type.Kind() != reflect.String {
			continue
		}
		fields[name] = g.value(field.Type, level+1)
	}
	if g.chance(1) {
		fields["unknownField"] = pick[any](g, 1, "text", nil, map[string]any{"a": 1})
	}
	return fields
}

// value generates a value of a type.
func (g generator) value(of reflect.Type, level int) any {
	if g.chance(6) {
		return nil
	}
	if g.IntN(1000) < 2 {
		return pick[any](g, "text", 7, true, []any{}, map[string]any{}, 1.5)
	}
	switch own[of] {
	case "quantity":
		return pick[any](g, "1", "0.5", "500m", "1Gi", "1024Mi", "0", "1e3", "0.1Gi", "1000", "1500Mi", "12E", "+5", "-2Ki",
			"007", "1.5Gi", "100n", "0.0000000001", "1000k", "2000000", " 3 ", 2, 0.25, 1e9, "1E2", "999999999999999999999")
	case "time":
		return pick[any](g, "2024-05-06T07:08:09Z", "2024-05-06T07:08:09.123456Z", "2024-05-06T07:08:09+02:00", "0001-01-01T00:00:00Z")
	case "microtime":
		return pick[any](g, "2024-05-06T07:08:09.123456Z", "2024-05-06T07:08:09.5-07:30", "2024-05-06T07:08:09Z")
	case "duration":
		return pick[any](g, "5m", "1h30m", "1.5s", "90s", "0", "250ms", "1us", "-3m")
	case "intorstring":
		return pick[any](g, 80, "80", "25%", "http", 0, "", -1)
	case "any":
		return pick[any](g, map[string]any{"a": []any{1, nil, "x"}}, map[string]any{}, 1.5, "text", true)
	}
	switch schemas[of] {
	case "schemaorbool":
		return pick[any](g, true, false, g.fields(reflect.TypeFor[apiextensions.JSONSchemaProps](), level+3))
	case "schemaorlist":
		return pick[any](g, []any{}, g.fields(reflect.TypeFor[apiextensions.JSONSchemaProps](), level+3),
			[]any{g.fields(reflect.TypeFor[apiextensions.JSONSchemaProps](), level+3)})
	case "schemaorstrings":
		return pick[any](g, []any{"a"}, []any{}, g.fields(reflect.TypeFor[apiextensions.JSONSchemaProps](), level+3))
	}
	switch of.Kind() {
	case reflect.String:
		return pick(g, "", "a", "b-1", "ünïcode", "x\ny")
	case reflect.Bool:
		return g.chance(60)
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Uint16:
		return pick(g, 0, 0, 1, 7, 30000)
	case reflect.Float64:
		return pick(g, 0, 1, 2.5, -1e30)
	case reflect.Pointer:
		return g.value(of.Elem(), level)
	case reflect.Slice:
		if of.Elem().Kind() == reflect.Uint8 {
			return pick(g, "", "YWJj", "YQ==", "YWI=")
		}
		items := []any{}
		for range g.IntN(3) {
			items = append(items, g.value(of.Elem(), level))
		}
		return items
	case reflect.Map:
		entries := map[string]any{}
		for i := range g.IntN(3) {
			entries[pick(g, "a", "app.kubernetes.io/name", "cpu")+strings.Repeat("x", i)] = g.value(of.Elem(), level)
		}
		return entries
	}
	return g.fields(of, level)
}
