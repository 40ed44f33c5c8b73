package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"sort"
	"strconv"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
)

// environments are those of admission policies, by version.
var environments = map[string]*cel.Env{}

func environmentOf(name string) *cel.Env {
	if known, ok := environments[name]; ok {
		return known
	}
	request, namespace := plugincel.BuildRequestType(), plugincel.BuildNamespaceType()
	set, err := environment.MustBaseEnvSet(version.MustParse(name)).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions: []cel.EnvOption{
			cel.Variable("object", cel.DynType),
			cel.Variable("oldObject", cel.DynType),
			cel.Variable("params", cel.DynType),
			cel.Variable("namespaceObject", namespace.CelType()),
			cel.Variable("request", request.CelType()),
			cel.Variable("authorizer", library.AuthorizerType),
			cel.Variable("authorizer.requestResource", library.ResourceCheckType),
		},
		DeclTypes: []*apiservercel.DeclType{namespace, request},
	}, environment.StrictCostOpt)
	if err != nil {
		log.Fatal(err)
	}
	env, err := set.Env(environment.NewExpressions)
	if err != nil {
		log.Fatal(err)
	}
	environments[name] = env
	return env
}

type overload struct {
	ID     string   `json:"id"`
	Member bool     `json:"member"`
	Args   []string `json:"args"`
	Result string   `json:"result"`
}

// functions lists the declared functions of an environment by name.
func functions(name string) map[string][]overload {
	found := map[string][]overload{}
	for function, declaration := range environmentOf(name).Functions() {
		for _, declared := range declaration.OverloadDecls() {
			args := []string{}
			for _, arg := range declared.ArgTypes() {
				args = append(args, cel.FormatCELType(arg))
			}
			found[function] = append(found[function], overload{
				ID: declared.ID(), Member: declared.IsMemberFunction(), Args: args, Result: cel.FormatCELType(declared.ResultType()),
			})
		}
	}
	return found
}

// requestResource is the resource of the variable authorizer.requestResource.
type requestResource struct{ request map[string]any }

func (r requestResource) text(field string) string {
	text, _ := r.request[field].(string)
	return text
}
func (r requestResource) GetName() string        { return r.text("name") }
func (r requestResource) GetNamespace() string   { return r.text("namespace") }
func (r requestResource) GetSubresource() string { return r.text("subResource") }
func (r requestResource) GetResource() schema.GroupVersionResource {
	resource, _ := r.request["resource"].(map[string]any)
	named := requestResource{resource}
	return schema.GroupVersionResource{Group: named.text("group"), Version: named.text("version"), Resource: named.text("resource")}
}

// authorize allows get, fails for fail and denies everything else.
func authorize(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	switch attributes.GetVerb() {
	case "get":
		return authorizer.DecisionAllow, "rule", nil
	case "fail":
		return authorizer.DecisionNoOpinion, "none", fmt.Errorf("broken")
	}
	return authorizer.DecisionDeny, "denied", nil
}

var (
	lastText      string
	lastVariables map[string]any
)

func variablesOf(text json.RawMessage) map[string]any {
	if string(text) == lastText {
		return lastVariables
	}
	var values map[string]any
	if err := decode(text, &values); err != nil {
		log.Fatalf("parity: cannot read variables: %v", err)
	}
	numbers(values)
	request, _ := values["request"].(map[string]any)
	caller := &user.DefaultInfo{Name: "ann", UID: "u1", Groups: []string{"dev"}}
	values["authorizer"] = library.NewAuthorizerVal(caller, authorizer.AuthorizerFunc(authorize))
	values["authorizer.requestResource"] = library.NewResourceAuthorizerVal(caller, authorizer.AuthorizerFunc(authorize), requestResource{request})
	lastText, lastVariables = string(text), values
	return values
}

func expression(source, name string, text json.RawMessage) []map[string]any {
	refused := func(message string) []map[string]any {
		return []map[string]any{{"phase": "compile-error", "value": message, "type": "", "cost": 0}}
	}
	var program cel.Program
	var of string
	compiled := recovered(func() map[string]any {
		env := environmentOf(name)
		ast, issues := env.Compile(source)
		if issues != nil {
			return refused("compilation failed: " + issues.String())[0]
		}
		var err error
		program, err = env.Program(ast, cel.InterruptCheckFrequency(celconfig.CheckFrequency))
		if err != nil {
			return refused("program instantiation failed: " + err.Error())[0]
		}
		of = cel.FormatCELType(ast.OutputType())
		return nil
	})
	if compiled != nil {
		return []map[string]any{compiled}
	}
	variables := variablesOf(text)
	return distinct(func() map[string]any {
		result := map[string]any{"type": of, "cost": uint64(0)}
		value, details, err := program.ContextEval(context.Background(), variables)
		if details != nil && details.ActualCost() != nil {
			result["cost"] = *details.ActualCost()
		}
		if err != nil {
			result["phase"], result["value"] = "eval-error", err.Error()
		} else {
			result["phase"], result["value"] = "ok", show(value)
		}
		return result
	})
}

// show prints a value. Entries of maps are sorted.
func show(value ref.Val) string {
	switch value := value.(type) {
	case types.Null:
		return "null"
	case types.Bool:
		return strconv.FormatBool(bool(value))
	case types.Int:
		return strconv.FormatInt(int64(value), 10)
	case types.Uint:
		return strconv.FormatUint(uint64(value), 10) + "u"
	case types.Double:
		return "double:" + strconv.FormatFloat(float64(value), 'g', -1, 64)
	case types.String:
		text := &strings.Builder{}
		encoder := json.NewEncoder(text)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(string(value)); err != nil {
			log.Fatal(err)
		}
		return strings.TrimSpace(text.String())
	case types.Bytes:
		return fmt.Sprintf("bytes:%x", []byte(value))
	case types.Timestamp:
		return "timestamp:" + string(value.ConvertToType(types.StringType).(types.String))
	case types.Duration:
		return fmt.Sprintf("duration:%d", int64(value.Duration))
	case *types.Optional:
		if !value.HasValue() {
			return "optional.none()"
		}
		return "optional(" + show(value.GetValue()) + ")"
	case *types.Type:
		return "type:" + value.TypeName()
	case traits.Lister:
		var items []string
		for iterator := value.Iterator(); iterator.HasNext() == types.True; {
			items = append(items, show(iterator.Next()))
		}
		return "[" + strings.Join(items, ",") + "]"
	case traits.Mapper:
		var entries []string
		for keys := value.Iterator(); keys.HasNext() == types.True; {
			key := keys.Next()
			entries = append(entries, show(key)+":"+show(value.Get(key)))
		}
		sort.Strings(entries)
		return "{" + strings.Join(entries, ",") + "}"
	}
	return value.Type().TypeName()
}
