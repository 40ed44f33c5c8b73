package main

import (
	"context"
	"encoding/json"
	"log"
	"time"

	"github.com/google/cel-go/common/types"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	extensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	kjson "sigs.k8s.io/json"
)

// measurement asks for the time of an evaluation, of the checks of policies, or of the creation of a custom resource.
type measurement struct {
	Expression     string
	Object         json.RawMessage
	Policies       []json.RawMessage
	CRD            json.RawMessage
	CustomResource string
	Rounds         int
}

// answer returns the mean time of a round in nanoseconds, with the garbage collection.
func (m *measurement) answer() map[string]int64 {
	var round func()
	switch {
	case m.Expression != "":
		round = m.evaluate()
	case m.CustomResource != "":
		round = m.create()
	default:
		round = m.admit()
	}
	round()
	start := time.Now()
	for i := 0; i < m.Rounds; i++ {
		round()
	}
	return map[string]int64{"nanoseconds": time.Since(start).Nanoseconds() / int64(max(m.Rounds, 1))}
}

// evaluate evaluates an expression as a policy does, on an object that is decoded already.
func (m *measurement) evaluate() func() {
	pod := &corev1.Pod{}
	if err := json.Unmarshal(m.Object, pod); err != nil {
		log.Fatalf("parity: cannot read a pod: %v", err)
	}
	condition := &validating.ValidationCondition{Expression: m.Expression}
	evaluator := newCompiler().CompileCondition([]cel.ExpressionAccessor{condition}, cel.OptionalVariableDeclarations{}, environment.StoredExpressions)
	resource, kind := corev1.SchemeGroupVersion.WithResource("pods"), corev1.SchemeGroupVersion.WithKind("Pod")
	record := admission.NewAttributesRecord(
		pod, nil, kind, pod.Namespace, pod.Name, resource, "", admission.Create, &metav1.CreateOptions{}, false, &user.DefaultInfo{Name: "ann"})
	pod.SetGroupVersionKind(kind)
	attributes, err := admission.NewVersionedAttributes(record, kind, admission.NewObjectInterfacesFromScheme(runtime.NewScheme()))
	if err != nil {
		log.Fatalf("parity: %v", err)
	}
	return func() {
		request := cel.CreateAdmissionRequest(record, metav1.GroupVersionResource(resource), metav1.GroupVersionKind(kind))
		results, _, err := evaluator.ForInput(
			context.Background(), attributes, request, cel.OptionalVariableBindings{}, nil, celconfig.RuntimeCELCostBudget)
		if err != nil || results[0].Error != nil || results[0].EvalResult != types.True {
			log.Fatalf("parity: the rule is not true: %v %v", err, results)
		}
	}
}

// admit compiles and checks policies that are decoded already.
func (m *measurement) admit() func() {
	var policies []*admissionv1.ValidatingAdmissionPolicy
	for _, text := range m.Policies {
		policy := &admissionv1.ValidatingAdmissionPolicy{}
		if err := json.Unmarshal(text, policy); err != nil {
			log.Fatalf("parity: cannot read a policy: %v", err)
		}
		policies = append(policies, policy)
	}
	return func() {
		for _, policy := range policies {
			if errs := admitPolicy(policy.DeepCopy(), true); len(errs) > 0 {
				log.Fatalf("parity: %v", errs.ToAggregate())
			}
		}
	}
}

// create decodes a custom resource and validates it, with all steps of a create.
func (m *measurement) create() func() {
	crd := &extensionsv1.CustomResourceDefinition{}
	_, err := kjson.UnmarshalStrict(m.CRD, crd)
	fatal(err)
	extensionsv1.SetObjectDefaults_CustomResourceDefinition(crd)
	served := serve(crd)
	return func() {
		object, _, err := served.decode(m.CustomResource, metav1.FieldValidationStrict)
		fatal(err)
		fill(object)
		fatal(rest.BeforeCreate(served.strategy, apirequest.WithNamespace(context.Background(), served.namespace(object)), object))
	}
}
