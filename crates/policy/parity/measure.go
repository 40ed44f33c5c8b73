package main

import (
	"context"
	"encoding/json"
	"log"
	"time"

	"github.com/google/cel-go/common/types"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
)

// measurement asks for the time of an evaluation, or of the checks of policies.
type measurement struct {
	Expression string
	Object     json.RawMessage
	Policies   []json.RawMessage
	Rounds     int
}

// answer returns the shortest time of a round in nanoseconds.
func (m *measurement) answer() map[string]int64 {
	round := m.admit()
	if m.Expression != "" {
		round = m.evaluate()
	}
	best := time.Duration(1<<63 - 1)
	for i := 0; i < m.Rounds; i++ {
		start := time.Now()
		round()
		best = min(best, time.Since(start))
	}
	return map[string]int64{"nanoseconds": best.Nanoseconds()}
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
