package main

import (
	"context"
	"encoding/json"
	"log"
	"time"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// measurement asks for the time of an evaluation, or of the checks of policies.
type measurement struct {
	Expression  string
	Environment string
	Variables   json.RawMessage
	Policies    []json.RawMessage
	Rounds      int
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

// evaluate evaluates an expression on values that are parsed already.
func (m *measurement) evaluate() func() {
	env := environmentOf(m.Environment)
	ast, issues := env.Compile(m.Expression)
	if issues != nil {
		log.Fatalf("parity: %v", issues)
	}
	program, err := env.Program(ast, cel.InterruptCheckFrequency(celconfig.CheckFrequency))
	if err != nil {
		log.Fatalf("parity: %v", err)
	}
	variables := variablesOf(m.Variables)
	return func() {
		if _, _, err := program.ContextEval(context.Background(), variables); err != nil {
			log.Fatalf("parity: %v", err)
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
