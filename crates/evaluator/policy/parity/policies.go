package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"sort"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// policyCase is a set of policies with the state of a cluster and a request.
type policyCase struct {
	// Stored policies and bindings are not checked.
	Stored   bool
	Policies []json.RawMessage
	Bindings []json.RawMessage
	Params   []map[string]any
	// ParamKinds maps kinds to namespaced or cluster. Other kinds are unknown.
	ParamKinds map[string]string
	Namespaces []json.RawMessage
	// Request is null if the policies are only checked.
	Request *request
}

type request struct {
	Operation, Group, Version, Kind, Resource, Subresource, Name, Namespace string
	Object, OldObject, Options                                              map[string]any
	DryRun                                                                  bool
	User                                                                    struct {
		Name, UID string
		Groups    []string
		Extra     map[string][]string
	}
}

func (c *policyCase) answer() any {
	policies, bindings, refused := c.load()
	if len(refused) > 0 || c.Request == nil {
		return []map[string]any{{"refused": refused}}
	}
	decisions := &[]string{}
	hooks := c.hooks(policies, bindings, decisions)
	return distinct(func() map[string]any {
		*decisions = []string{}
		result := c.dispatch(hooks)
		result["decisions"] = *decisions
		return result
	})
}

// load decodes, defaults and checks all documents. It returns the errors of the checks.
func (c *policyCase) load() ([]*admissionv1.ValidatingAdmissionPolicy, []*admissionv1.ValidatingAdmissionPolicyBinding, []string) {
	refused := []string{}
	var policies []*admissionv1.ValidatingAdmissionPolicy
	for _, text := range c.Policies {
		policy := &admissionv1.ValidatingAdmissionPolicy{}
		if err := json.Unmarshal(text, policy); err != nil {
			log.Fatalf("parity: cannot read a policy: %v", err)
		}
		for _, err := range admitPolicy(policy, !c.Stored) {
			refused = append(refused, err.Error())
		}
		policies = append(policies, policy)
	}
	var bindings []*admissionv1.ValidatingAdmissionPolicyBinding
	for _, text := range c.Bindings {
		binding := &admissionv1.ValidatingAdmissionPolicyBinding{}
		if err := json.Unmarshal(text, binding); err != nil {
			log.Fatalf("parity: cannot read a binding: %v", err)
		}
		for _, err := range admitBinding(binding, !c.Stored) {
			refused = append(refused, err.Error())
		}
		bindings = append(bindings, binding)
	}
	return policies, bindings, refused
}

// compile does what compilePolicy of the plugin does.
func compile(policy *admissionv1.ValidatingAdmissionPolicy) validating.Validator {
	hasParams := policy.Spec.ParamKind != nil
	with := cel.OptionalVariableDeclarations{HasParams: hasParams, HasAuthorizer: true}
	without := cel.OptionalVariableDeclarations{HasParams: hasParams, HasAuthorizer: false}
	compiler := newCompiler()
	var variables []cel.NamedExpressionAccessor
	for _, variable := range policy.Spec.Variables {
		variables = append(variables, &validating.Variable{Name: variable.Name, Expression: variable.Expression})
	}
	compiler.CompileAndStoreVariables(variables, with, environment.StoredExpressions)
	var matcher matchconditions.Matcher
	if len(policy.Spec.MatchConditions) > 0 {
		var conditions []cel.ExpressionAccessor
		for index := range policy.Spec.MatchConditions {
			conditions = append(conditions, (*matchconditions.MatchCondition)(&policy.Spec.MatchConditions[index]))
		}
		compiled := compiler.CompileCondition(conditions, with, environment.StoredExpressions)
		matcher = matchconditions.NewMatcher(compiled, policy.Spec.FailurePolicy, "policy", "validate", policy.Name)
	}
	validations := make([]cel.ExpressionAccessor, len(policy.Spec.Validations))
	messages := make([]cel.ExpressionAccessor, len(policy.Spec.Validations))
	for index, validation := range policy.Spec.Validations {
		validations[index] = &validating.ValidationCondition{
			Expression: validation.Expression, Message: validation.Message, Reason: validation.Reason,
		}
		if validation.MessageExpression != "" {
			messages[index] = &validating.MessageExpressionCondition{MessageExpression: validation.MessageExpression}
		}
	}
	annotations := make([]cel.ExpressionAccessor, len(policy.Spec.AuditAnnotations))
	for index, annotation := range policy.Spec.AuditAnnotations {
		annotations[index] = &validating.AuditAnnotationCondition{Key: annotation.Key, ValueExpression: annotation.ValueExpression}
	}
	return newValidator(
		compiler.CompileCondition(validations, with, environment.StoredExpressions), matcher,
		compiler.CompileCondition(annotations, with, environment.StoredExpressions),
		compiler.CompileCondition(messages, without, environment.StoredExpressions), policy.Spec.FailurePolicy)
}

// recorder notes the decisions of a validator.
type recorder struct {
	validating.Validator
	policy    string
	decisions *[]string
}

func (r recorder) Validate(ctx context.Context, resource schema.GroupVersionResource, attributes *admission.VersionedAttributes, params runtime.Object, namespace *corev1.Namespace, budget int64, authz authorizerOfPolicies) validating.ValidateResult {
	result := r.Validator.Validate(ctx, resource, attributes, params, namespace, budget, authz)
	for _, decision := range result.Decisions {
		*r.decisions = append(*r.decisions, fmt.Sprintf("%s %s %s", r.policy, decision.Action, decision.Evaluation))
	}
	if len(result.Decisions) == 0 {
		*r.decisions = append(*r.decisions, r.policy+" skip")
	}
	return result
}

type attributes struct {
	admission.Attributes
	annotations map[string]string
}

// AddAnnotation keeps the first value, as the API server does.
func (a *attributes) AddAnnotation(key, value string) error {
	if _, known := a.annotations[key]; !known {
		a.annotations[key] = value
	}
	return nil
}

type warnings []string

func (w *warnings) AddWarning(_, text string) { *w = append(*w, text) }

// synced is an informer of parameters that needs no API server.
type synced struct{ cache.SharedIndexInformer }

func (synced) HasSynced() bool { return true }

type params struct{ lister cache.GenericLister }

func (p params) Informer() cache.SharedIndexInformer { return synced{} }
func (p params) Lister() cache.GenericLister         { return p.lister }

func object(fields map[string]any) runtime.Object {
	if fields == nil {
		return nil
	}
	return &unstructured.Unstructured{Object: numbers(runtime.DeepCopyJSON(numbers(fields).(map[string]any))).(map[string]any)}
}

// param is an object as informers have it: ConfigMaps are typed and know neither apiVersion nor kind.
func param(fields map[string]any) (runtime.Object, error) {
	if fields["apiVersion"] != "v1" || fields["kind"] != "ConfigMap" {
		return object(fields), nil
	}
	typed := &corev1.ConfigMap{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(numbers(fields).(map[string]any), typed); err != nil {
		return nil, err
	}
	typed.Kind, typed.APIVersion = "", ""
	return typed, nil
}

func (c *policyCase) dispatch(hooks []validating.PolicyHook) map[string]any {
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, text := range c.Namespaces {
		namespace := &corev1.Namespace{}
		if err := json.Unmarshal(text, namespace); err != nil {
			log.Fatalf("parity: cannot read a namespace: %v", err)
		}
		if err := namespaces.Add(namespace); err != nil {
			log.Fatal(err)
		}
	}
	matcher := matching.NewMatcher(corelisters.NewNamespaceLister(namespaces), fake.NewSimpleClientset())
	dispatcher := validating.NewDispatcher(authorizer.AuthorizerFunc(authorize), generic.NewPolicyMatcher(matcher))
	r := c.Request
	attributes := &attributes{
		Attributes: admission.NewAttributesRecord(
			object(r.Object), object(r.OldObject),
			schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}, r.Namespace, r.Name,
			schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Resource}, r.Subresource,
			admission.Operation(r.Operation), object(r.Options), r.DryRun,
			&user.DefaultInfo{Name: r.User.Name, UID: r.User.UID, Groups: r.User.Groups, Extra: r.User.Extra}),
		annotations: map[string]string{},
	}
	warned := &warnings{}
	ctx := warning.WithWarningRecorder(context.Background(), warned)
	err := dispatcher.Dispatch(ctx, attributes, admission.NewObjectInterfacesFromScheme(runtime.NewScheme()), hooks)
	sort.Strings(*warned)
	result := map[string]any{"annotations": attributes.annotations, "warnings": append([]string{}, *warned...)}
	var status *apierrors.StatusError
	switch {
	case errors.As(err, &status):
		result["message"], result["reason"], result["code"] = status.ErrStatus.Message, status.ErrStatus.Reason, status.ErrStatus.Code
	case err != nil:
		result["error"] = err.Error()
	}
	return result
}

func (c *policyCase) hooks(policies []*admissionv1.ValidatingAdmissionPolicy, bindings []*admissionv1.ValidatingAdmissionPolicyBinding, decisions *[]string) []validating.PolicyHook {
	objects := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, fields := range c.Params {
		object, err := param(fields)
		if err != nil {
			log.Fatalf("parity: cannot read parameters: %v", err)
		}
		if err := objects.Add(object); err != nil {
			log.Fatal(err)
		}
	}
	var hooks []validating.PolicyHook
	for _, policy := range policies {
		hook := validating.PolicyHook{Policy: policy, Evaluator: recorder{compile(policy), policy.Name, decisions}}
		for _, binding := range bindings {
			if binding.Spec.PolicyName == policy.Name {
				hook.Bindings = append(hook.Bindings, binding)
			}
		}
		if kind := policy.Spec.ParamKind; kind != nil {
			switch c.ParamKinds[kind.Kind] {
			case "namespaced":
				hook.ParamScope = meta.RESTScopeNamespace
			case "cluster":
				hook.ParamScope = meta.RESTScopeRoot
			default:
				version, _ := schema.ParseGroupVersion(kind.APIVersion)
				hook.ConfigurationError = fmt.Errorf("failed to find resource referenced by paramKind: '%v'", version.WithKind(kind.Kind))
			}
			if hook.ConfigurationError == nil {
				hook.ParamInformer = params{cache.NewGenericLister(objects, schema.GroupResource{Resource: "params"})}
			}
		}
		hooks = append(hooks, hook)
	}
	return hooks
}
